"""Both dispatch paths, held to the same rules by the same tests (R18), on a real PostgreSQL.

The API is scripted here: what a real one answers, and how that is classified, is tested elsewhere through the
real client. Time is a parameter (R23).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher import store
from dispatcher.dispatch import BufferedPath, Offers, Path, TickPath
from dispatcher.executors import Attempt
from dispatcher.rules import Decision, Disposition, Outcome, Policy, Verdict
from tests.integration.rows import ManualClock, add_rows, at, row, running, set_row

DEADLINE_S = 10

REFUSED = Verdict(Disposition.UNAVAILABLE, "connection refused", "R1")
LOST = Verdict(Disposition.UNAVAILABLE, "connection closed before the answer", "R1", may_exist=True)
BUSY = Verdict(Disposition.BACKPRESSURE, "429 TooManyRequests", "R1")
LIMITED = Verdict(Disposition.DEFERRED, "client rate limiter", "R8")
INVALID = Verdict(Disposition.REJECTED, "422 Invalid", "R3")
PLACED = Verdict(Disposition.PLACED, "201 Created", "R1", may_exist=True, pod_name="pod-1", pod_uid="uid-1")

Script = Callable[[Attempt], Any]


class ScriptedApi:
    """Answers each create as its script says; `hangs` makes the creates wait for `answer`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.script: Script = lambda _attempt: PLACED
        self.attempts: list[Attempt] = []
        self.asked = asyncio.Semaphore(0)
        self.answer = asyncio.Event()
        self.answer.set()
        self.most_at_once = 0
        self._under_way = 0

    async def create(self, attempt: Attempt) -> Outcome:
        started_at = self._clock.now()
        self.attempts.append(attempt)
        self.asked.release()
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            await self.answer.wait()
            verdict = self.script(attempt)
            if asyncio.iscoroutine(verdict):
                verdict = await verdict
        finally:
            self._under_way -= 1
        return Outcome(verdict, started_at, self._clock.now())

    async def close(self) -> None: ...


class Recorder:
    def __init__(self) -> None:
        self.offers: list[tuple[store.Claim, Outcome, Decision, bool]] = []
        self._more = asyncio.Event()

    def offered(self, claim: store.Claim, outcome: Outcome, decision: Decision, settled: bool) -> None:
        self.offers.append((claim, outcome, decision, settled))
        self._more.set()

    async def until(self, count: int) -> None:
        async def enough() -> None:
            while len(self.offers) < count:
                self._more.clear()
                await self._more.wait()

        try:
            await asyncio.wait_for(enough(), DEADLINE_S)
        except TimeoutError:
            pytest.fail(f"waited {DEADLINE_S} s for {count} settled offers, saw {len(self.offers)}")


class System:
    """One path with its parts; `offer_due` is one turn of the loop."""

    def __init__(self, engine: AsyncEngine, mode: str, *, slots: int = 4, buffer: int = 50) -> None:
        self.engine = engine
        self.clock = ManualClock()
        self.api = ScriptedApi(self.clock)
        self.seen = Recorder()
        self.offers = Offers(
            engine=engine,
            clock=self.clock,
            executor=self.api,
            policy=Policy(),
            replica="r1",
            claim_s=30,
            mark_queued=mode == "buffered",
            witness=self.seen,
        )
        self.path: Path = (
            TickPath(self.offers, slots=slots)
            if mode == "tick"
            else BufferedPath(self.offers, self.clock, workers=slots, buffer=buffer, wait_s=10)
        )

    async def offer_due(self) -> int:
        claims = await self.offers.claim(await self.path.room())
        self.path.take(claims)
        return len(claims)

    async def settle_due(self) -> int:
        before = len(self.seen.offers)
        claimed = await self.offer_due()
        await self.seen.until(before + claimed)
        return claimed


@pytest.fixture(params=["tick", "buffered"])
async def system(request: pytest.FixtureRequest, engine: AsyncEngine) -> AsyncIterator[System]:
    system = System(engine, request.param)
    yield system
    system.api.answer.set()
    await asyncio.wait_for(system.path.drain(), DEADLINE_S)


async def test_R1_R5_an_unavailable_api_spends_no_attempt_and_the_holds_grow(system: System):
    (row_id,) = await add_rows(system.engine)
    system.api.script = lambda _: REFUSED
    offered_at = []
    for second in range(200):
        system.clock.to(second)
        if await system.settle_due():
            offered_at.append(second)
    after = await row(system.engine, row_id)
    assert offered_at == [0, 5, 10, 20, 40, 80, 137, 194]
    assert (after.state, after.dispatch_attempts, after.dispatch_unavailable_since) == ("scheduled", 0, at(0))


@pytest.mark.parametrize(("second", "ends_as"), [(899, "scheduled"), (900, "failed"), (901, "failed")])
async def test_R4_the_window_fails_the_row_from_its_end_on(system: System, second: float, ends_as: str):
    (row_id,) = await add_rows(system.engine, retries=2, max_tries=3)
    system.api.script = lambda _: REFUSED
    await system.settle_due()
    await set_row(system.engine, row_id, next_offer_at=at(second))
    system.clock.to(second)
    await system.settle_due()
    after = await row(system.engine, row_id)
    assert after.state == ends_as
    if ends_as == "failed":
        minute = f"15m{int(second) - 900}s"
        assert after.reason == f"dispatch_failed: Kubernetes API unavailable for {minute}: connection refused"
        assert (after.max_tries, after.dispatch_attempts) == (1, 0), "R7: terminal, no retry billed"


async def test_R4_a_create_that_began_within_the_window_may_hang_past_its_end(system: System):
    (row_id,) = await add_rows(system.engine)
    system.api.script = lambda _: REFUSED
    await system.settle_due()
    await set_row(system.engine, row_id, next_offer_at=at(899))
    system.clock.to(899)
    await system.api.asked.acquire()
    system.api.answer.clear()
    assert await system.offer_due() == 1
    await asyncio.wait_for(system.api.asked.acquire(), DEADLINE_S)
    system.clock.to(914)
    system.api.answer.set()
    await system.seen.until(2)
    assert (await row(system.engine, row_id)).state == "scheduled"


async def test_R6_the_sixth_rejection_fails_the_row(system: System):
    (row_id,) = await add_rows(system.engine)
    system.api.script = lambda _: INVALID
    offered_at = []
    for second in range(200):
        system.clock.to(second)
        if await system.settle_due():
            offered_at.append(second)
    after = await row(system.engine, row_id)
    assert offered_at == [0, 5, 15, 35, 75, 155]
    assert (after.state, after.reason) == ("failed", "dispatch_failed: rejected 6 times: 422 Invalid")


@pytest.mark.parametrize(
    ("verdict", "since", "attempts"),
    [(BUSY, None, 1), (INVALID, None, 2), (LIMITED, at(-60), 1), (REFUSED, at(-60), 1)],
    ids=["backpressure clears", "rejected clears", "deferred keeps", "unavailable keeps"],
)
async def test_R8_what_each_disposition_does_to_the_outage_start(
    system: System, verdict: Verdict, since: Any, attempts: int
):
    (row_id,) = await add_rows(system.engine, dispatch_unavailable_since=at(-60), dispatch_attempts=1)
    system.api.script = lambda _: verdict
    await system.settle_due()
    after = await row(system.engine, row_id)
    assert (after.dispatch_unavailable_since, after.dispatch_attempts) == (since, attempts)


async def test_R13_the_pod_of_a_lost_answer_may_win_the_race(system: System):
    """The create is committed, its answer lost; the pod reports RUNNING before the re-offer is written."""
    (row_id,) = await add_rows(system.engine)

    async def committed_then_lost(_attempt: Attempt) -> Verdict:
        await set_row(system.engine, row_id, **running())
        return LOST

    system.api.script = committed_then_lost
    await system.settle_due()
    after = await row(system.engine, row_id)
    (_, _, _, settled) = system.seen.offers[0]
    assert not settled
    assert (after.state, after.pod_uid, after.dispatch_unavailable_since) == ("running", "uid-1", None)
    system.clock.to(3600)
    assert await system.offer_due() == 0, "a running row is never offered again"


async def test_R10_each_offer_of_a_row_has_an_epoch_of_its_own(system: System):
    await add_rows(system.engine)
    system.api.script = lambda _: LOST
    for second in range(100):
        system.clock.to(second)
        await system.settle_due()
    epochs = [attempt.epoch for attempt in system.api.attempts]
    assert len(epochs) == 6
    assert epochs == sorted(set(epochs))


async def test_R18_no_more_creates_at_once_than_slots(system: System):
    await add_rows(system.engine, 30)
    while len(system.seen.offers) < 30:
        await system.offer_due()
    assert system.api.most_at_once <= 4


async def test_R20_a_bug_in_a_create_costs_one_claim_and_no_loop(system: System):
    bad, good = await add_rows(system.engine, 2)

    def script(attempt: Attempt) -> Verdict:
        if attempt.row_id == bad:
            raise RuntimeError("a bug")
        return PLACED

    system.api.script = script
    await system.offer_due()
    await system.seen.until(1)
    async with system.engine.begin() as connection:
        assert await store.re_offer_dead_claims(connection, now=at(30)) == [bad]
    assert (await row(system.engine, good)).state == "queued"


async def test_R20_backends_cut_between_create_and_write_lose_nothing(system: System):
    (row_id,) = await add_rows(system.engine)

    async def cut_the_database(_attempt: Attempt) -> Verdict:
        async with system.engine.connect() as connection:
            await connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        return PLACED

    async with system.engine.connect() as one, system.engine.connect() as two:  # several in the pool
        await one.execute(text("SELECT 1"))
        await two.execute(text("SELECT 1"))
    system.api.script = cut_the_database
    await system.settle_due()
    assert (await row(system.engine, row_id)).pod_name == "pod-1"


async def test_R25_what_has_not_been_sent_is_given_back_at_once(engine: AsyncEngine):
    system = System(engine, "buffered", slots=2)
    ids = await add_rows(engine, 10, dispatch_unavailable_since=at(-30))
    system.api.answer.clear()
    await system.offer_due()
    draining = asyncio.create_task(system.path.drain())
    await asyncio.sleep(0)
    system.api.answer.set()
    await asyncio.wait_for(draining, DEADLINE_S)
    states = [await row(engine, i) for i in ids]
    given_back = [one for one in states if one.state == "scheduled"]
    assert len(system.api.attempts) + len(given_back) == 10
    assert len(system.api.attempts) <= 2
    assert all(one.dispatch_unavailable_since == at(-30) for one in given_back), "R8: kept"


async def test_R18_a_row_that_waited_in_the_buffer_past_its_bound_is_deferred_unsent(engine: AsyncEngine):
    system = System(engine, "buffered", slots=1)
    ids = await add_rows(engine, 3, dispatch_unavailable_since=at(-30))
    system.api.answer.clear()
    await system.offer_due()
    await asyncio.wait_for(system.api.asked.acquire(), DEADLINE_S)
    system.clock.to(10.5)
    system.api.answer.set()
    await system.seen.until(3)
    dispositions = [outcome.verdict.disposition for _, outcome, _, _ in system.seen.offers]
    assert dispositions == [Disposition.PLACED, Disposition.DEFERRED, Disposition.DEFERRED]
    assert len(system.api.attempts) == 1
    waiting = [one for one in [await row(engine, i) for i in ids] if one.state == "scheduled"]
    assert [one.dispatch_unavailable_since for one in waiting] == [at(-30), at(-30)]
    await asyncio.wait_for(system.path.drain(), DEADLINE_S)
