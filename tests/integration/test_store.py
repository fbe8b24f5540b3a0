"""The statements, each held to the guard in its name, on a real PostgreSQL."""

import asyncio
import itertools
import json
from typing import Any

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher import store
from dispatcher.rules import Decision, Fail, Place, Rank, ReOffer
from dispatcher.schema import control, leadership_terms, runs
from dispatcher.store.claims import claim_statement
from tests.integration.rows import NOW, add_rows, at, row, running, set_row


async def claim(engine: AsyncEngine, limit: int = 10, now: float = 0, **more: Any) -> list[store.Claim]:
    async with engine.begin() as connection:
        return await store.claim_due(
            connection,
            now=at(now),
            limit=limit,
            **{"replica": "r1", "until": at(now + 30), "mark_queued": False, **more},
        )


async def settle(engine: AsyncEngine, row_id: int, epoch: int, decision: Decision, now: float = 1) -> bool:
    async with engine.begin() as connection:
        current = await store.settle_if_current(connection, [store.Settlement(row_id, epoch, decision)], now=at(now))
    return row_id in current


PLACE = Place("pod-1", "uid-1")
RE_OFFER = ReOffer(at(6), 0, at(1), Rank.HELD, "held: Kubernetes API unavailable: connection refused")
FAIL = Fail("dispatch_failed: Kubernetes API unavailable for 15m0s: connection refused", 2, NOW)
DECISIONS: list[Decision] = [PLACE, RE_OFFER, FAIL]


async def test_R10_a_claim_bumps_the_epoch_and_forgets_the_pod(engine: AsyncEngine):
    (row_id,) = await add_rows(engine, attempt_epoch=4, pod_name="old", pod_uid="old", agent_nonce="old")
    (claimed,) = await claim(engine)
    after = await row(engine, row_id)
    assert (claimed.id, claimed.epoch, after.attempt_epoch) == (row_id, 5, 5)
    assert (after.pod_name, after.pod_uid, after.agent_nonce) == (None, None, None)
    assert (after.state, after.claimed_by, after.claim_until) == ("scheduled", "r1", at(30))


async def test_R18_the_buffered_claim_marks_the_row_queued_and_keeps_the_outage_start_R8(engine: AsyncEngine):
    (row_id,) = await add_rows(engine, dispatch_unavailable_since=at(-100), dispatch_attempts=3)
    (claimed,) = await claim(engine, mark_queued=True)
    after = await row(engine, row_id)
    assert (after.state, after.dispatch_unavailable_since) == ("queued", at(-100))
    assert (claimed.row.dispatch_attempts, claimed.row.dispatch_unavailable_since) == (3, at(-100))


async def test_R18_a_row_is_not_offered_before_its_time(engine: AsyncEngine):
    await add_rows(engine, next_offer_at=at(10))
    assert await claim(engine, now=9.999) == []
    assert len(await claim(engine, now=10)) == 1


async def test_R18_no_more_rows_are_claimed_than_asked_for(engine: AsyncEngine):
    await add_rows(engine, 20)
    assert len(await claim(engine, limit=7)) == 7


async def test_R18_first_offers_go_before_held_rows_and_refused_ones_last(engine: AsyncEngine):
    (refused,) = await add_rows(engine, offer_rank=2, next_offer_at=at(-300))
    (held,) = await add_rows(engine, offer_rank=1, next_offer_at=at(-200))
    (older,) = await add_rows(engine, offer_rank=1, next_offer_at=at(-250))
    (first,) = await add_rows(engine, offer_rank=0, next_offer_at=at(-1))
    order = [(await claim(engine, limit=1))[0].id for _ in range(4)]
    assert order == [first, older, held, refused]


async def test_R18_two_claimers_at_once_never_claim_the_same_row(engine: AsyncEngine):
    ids = await add_rows(engine, 200)
    batches = await asyncio.gather(*(claim(engine, limit=60, replica=f"r{n}") for n in range(4)))
    claimed = [one.id for batch in batches for one in batch]
    assert len(claimed) == len(set(claimed))
    assert set(claimed) <= set(ids)


async def test_R8_nothing_is_claimed_while_dispatching_is_paused(engine: AsyncEngine):
    await add_rows(engine)
    async with engine.begin() as connection:
        await connection.execute(control.insert().values(id=1, paused_at=NOW))
    assert await claim(engine) == []
    async with engine.begin() as connection:
        await connection.execute(update(control).values(paused_at=None))
    assert len(await claim(engine)) == 1


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("mark_queued", [False, True], ids=["tick", "buffered"])
async def test_R13_a_settlement_under_a_stale_epoch_changes_nothing(
    engine: AsyncEngine, decision: Decision, mark_queued: bool
):
    (row_id,) = await add_rows(engine)
    (claimed,) = await claim(engine, mark_queued=mark_queued)
    before = await row(engine, row_id)
    assert not await settle(engine, row_id, claimed.epoch - 1, decision)
    assert not await settle(engine, row_id, claimed.epoch + 1, decision)
    assert await row(engine, row_id) == before


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("mark_queued", [False, True], ids=["tick", "buffered"])
async def test_R13_a_settlement_that_meets_a_running_row_changes_nothing(
    engine: AsyncEngine, decision: Decision, mark_queued: bool
):
    """The pod of a lost answer won the race; a late *placed* too leaves its row alone."""
    (row_id,) = await add_rows(engine)
    (claimed,) = await claim(engine, mark_queued=mark_queued)
    await set_row(engine, row_id, **running())
    before = await row(engine, row_id)
    assert not await settle(engine, row_id, claimed.epoch, decision)
    assert await row(engine, row_id) == before


@pytest.mark.parametrize("mark_queued", [False, True], ids=["tick", "buffered"])
async def test_R8_placed_clears_the_outage_start_on_both_paths(engine: AsyncEngine, mark_queued: bool):
    (row_id,) = await add_rows(engine, dispatch_unavailable_since=at(-100), dispatch_attempts=2)
    (claimed,) = await claim(engine, mark_queued=mark_queued)
    assert await settle(engine, row_id, claimed.epoch, PLACE)
    after = await row(engine, row_id)
    assert (after.state, after.pod_name, after.pod_uid) == ("queued", "pod-1", "uid-1")
    assert (after.dispatch_unavailable_since, after.dispatch_attempts) == (None, 2)
    assert (after.claimed_by, after.claim_until, after.attempt_epoch) == (None, None, claimed.epoch)


@pytest.mark.parametrize("mark_queued", [False, True], ids=["tick", "buffered"])
async def test_R10_a_re_offer_bumps_the_epoch_and_returns_the_row_to_scheduled(engine: AsyncEngine, mark_queued: bool):
    (row_id,) = await add_rows(engine)
    (claimed,) = await claim(engine, mark_queued=mark_queued)
    assert await settle(engine, row_id, claimed.epoch, RE_OFFER)
    after = await row(engine, row_id)
    assert (after.state, after.attempt_epoch, after.next_offer_at) == ("scheduled", claimed.epoch + 1, at(6))
    assert (after.dispatch_unavailable_since, after.dispatch_attempts) == (at(1), 0)
    assert (after.claimed_by, after.offer_rank, after.reason) == (None, 1, RE_OFFER.reason)


@pytest.mark.parametrize("mark_queued", [False, True], ids=["tick", "buffered"])
async def test_R7_dispatch_failed_is_terminal_and_bills_no_retry(engine: AsyncEngine, mark_queued: bool):
    (row_id,) = await add_rows(engine, try_number=2, max_tries=5, retries=4)
    (claimed,) = await claim(engine, mark_queued=mark_queued)
    assert await settle(engine, row_id, claimed.epoch, FAIL, now=900)
    after = await row(engine, row_id)
    assert (after.state, after.ended_at, after.reason) == ("failed", at(900), FAIL.reason)
    assert (after.try_number, after.max_tries, after.retries) == (2, 2, 4)
    assert after.attempt_epoch == claimed.epoch + 1, "an earlier ambiguous create may have left a pod (R10)"


async def test_R13_one_batch_settles_each_row_under_its_own_guard(engine: AsyncEngine):
    ids = await add_rows(engine, 6)
    claims = {one.id: one.epoch for one in await claim(engine)}
    await set_row(engine, ids[0], **running())
    decisions: list[Decision] = [PLACE, PLACE, RE_OFFER, FAIL, RE_OFFER, PLACE]
    batch = [store.Settlement(i, claims[i], d) for i, d in zip(ids, decisions, strict=True)]
    batch[4] = store.Settlement(ids[4], claims[ids[4]] + 7, RE_OFFER)
    async with engine.begin() as connection:
        current = await store.settle_if_current(connection, batch, now=at(1))
    assert current == {ids[1], ids[2], ids[3], ids[5]}
    assert [(await row(engine, i)).state for i in ids] == [
        "running", "queued", "scheduled", "failed", "scheduled", "queued",
    ]  # fmt: skip


@pytest.mark.parametrize("mark_queued", [False, True], ids=["tick", "buffered"])
async def test_R20_a_dead_claim_is_re_offered_with_its_outage_start_and_attempts(
    engine: AsyncEngine, mark_queued: bool
):
    (row_id,) = await add_rows(engine, dispatch_unavailable_since=at(-50), dispatch_attempts=2)
    (claimed,) = await claim(engine, mark_queued=mark_queued)
    async with engine.begin() as connection:
        assert await store.re_offer_dead_claims(connection, now=at(29.9)) == []
        assert await store.re_offer_dead_claims(connection, now=at(30)) == [row_id]
    after = await row(engine, row_id)
    assert (after.state, after.claimed_by, after.next_offer_at) == ("scheduled", None, at(30))
    assert after.attempt_epoch == claimed.epoch + 1
    assert (after.dispatch_unavailable_since, after.dispatch_attempts) == (at(-50), 2)
    assert not await settle(engine, row_id, claimed.epoch, PLACE), "its late settlement is refused (R13)"


async def test_R20_a_placed_row_is_no_claim_and_is_left_alone(engine: AsyncEngine):
    (row_id,) = await add_rows(engine)
    (claimed,) = await claim(engine)
    await settle(engine, row_id, claimed.epoch, PLACE)
    async with engine.begin() as connection:
        assert await store.re_offer_dead_claims(connection, now=at(10_000)) == []


async def test_R21_a_due_retry_starts_the_next_try_as_a_new_episode_R8(engine: AsyncEngine):
    (row_id,) = await add_rows(
        engine, state="up_for_retry", max_tries=3, next_offer_at=at(20), attempt_epoch=3,
        dispatch_attempts=4, dispatch_unavailable_since=NOW, pod_uid="u", agent_nonce="n",
    )  # fmt: skip
    async with engine.begin() as connection:
        assert await store.plan_due_retries(connection, now=at(19)) == 0
        assert await store.plan_due_retries(connection, now=at(20)) == 1
    after = await row(engine, row_id)
    assert (after.state, after.try_number, after.attempt_epoch) == ("scheduled", 2, 4)
    assert (after.dispatch_attempts, after.dispatch_unavailable_since, after.pod_uid) == (0, None, None)


async def test_R8_a_reschedule_resets_the_outage_start_and_keeps_attempts_and_try(engine: AsyncEngine):
    (row_id,) = await add_rows(
        engine, state="up_for_reschedule", next_offer_at=at(20), attempt_epoch=3,
        dispatch_attempts=4, dispatch_unavailable_since=NOW,
    )  # fmt: skip
    async with engine.begin() as connection:
        assert await store.plan_due_reschedules(connection, now=at(20)) == 1
    after = await row(engine, row_id)
    assert (after.state, after.try_number, after.attempt_epoch) == ("scheduled", 1, 4)
    assert (after.dispatch_attempts, after.dispatch_unavailable_since) == (4, None)


@pytest.mark.parametrize(
    ("states", "ends_as"),
    [
        (["success", "success"], "success"),
        (["success", "failed"], "failed"),
        (["success", "scheduled"], "running"),
        (["failed", "up_for_retry"], "running"),
    ],
)
async def test_R21_a_run_ends_when_all_its_rows_have(engine: AsyncEngine, states: list[str], ends_as: str):
    ids = await add_rows(engine, len(states))
    for row_id, state in zip(ids, states, strict=True):
        await set_row(engine, row_id, state=state, ended_at=NOW if state in ("success", "failed") else None)
    async with engine.begin() as connection:
        await store.end_finished_runs(connection, now=at(5))
        assert (await connection.execute(select(runs.c.state))).scalar_one() == ends_as


class TestLeadership:
    async def lead(self, engine: AsyncEngine, holder: str, now: float) -> int | None:
        async with engine.begin() as connection:
            return await store.lead_if_free(connection, now=at(now), holder=holder, lease_s=15)

    async def test_R19_one_leads_and_renews_within_its_term(self, engine: AsyncEngine):
        assert await self.lead(engine, "a", 0) == 1
        assert await self.lead(engine, "b", 1) is None
        assert await self.lead(engine, "a", 5) == 1
        assert await self.lead(engine, "b", 19) is None

    async def test_R19_a_lapsed_lease_is_a_new_term_for_its_own_holder_too(self, engine: AsyncEngine):
        assert await self.lead(engine, "a", 0) == 1
        assert await self.lead(engine, "a", 15) == 2
        assert await self.lead(engine, "b", 30) == 3

    async def test_R25_a_resigned_leader_is_followed_at_once(self, engine: AsyncEngine):
        assert await self.lead(engine, "a", 0) == 1
        async with engine.begin() as connection:
            assert await store.resign_if_leading(connection, now=at(2), holder="a", term=1)
        assert await self.lead(engine, "b", 2) == 2
        async with engine.begin() as connection:
            assert not await store.resign_if_leading(connection, now=at(3), holder="a", term=1)

    async def test_R19_recorded_terms_do_not_overlap(self, engine: AsyncEngine):
        for holder, now in [("a", 0), ("a", 5), ("b", 20), ("a", 21), ("b", 25), ("a", 45)]:
            await self.lead(engine, holder, now)
        async with engine.connect() as connection:
            terms = (await connection.execute(select(leadership_terms).order_by("term"))).all()
        assert [one.holder for one in terms] == ["a", "b", "a"]
        assert all(before.expires_at <= after.began_at for before, after in itertools.pairwise(terms))

    async def test_R19_candidates_at_once_get_one_leader(self, engine: AsyncEngine):
        terms = await asyncio.gather(*(self.lead(engine, f"r{n}", 0) for n in range(8)))
        assert sorted(term for term in terms if term is not None) == [1]


async def test_R18_a_claim_reads_only_what_it_takes_however_many_rows_wait(engine: AsyncEngine):
    """The plan of the claim, kept: 20,000 held rows, 100 due ones, a claim of 100."""
    await add_rows(engine, 20_000, offer_rank=1, next_offer_at=at(60), dispatch_unavailable_since=NOW)
    await add_rows(engine, 300, offer_rank=1)
    async with engine.connect() as connection:
        await connection.execute(text("ANALYZE task_instances"))
        statement = claim_statement(at(0), 100, "r1", at(30), mark_queued=False)
        compiled = statement.compile(dialect=engine.dialect, compile_kwargs={"render_postcompile": True})
        explained = await connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {compiled}", compiled.params)
        plan = explained.scalar_one()
        await connection.rollback()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    scans = [node for node in _nodes(plan[0]["Plan"]) if node.get("Relation Name") == "task_instances"]
    read = sum((n["Actual Rows"] + n.get("Rows Removed by Filter", 0)) * n["Actual Loops"] for n in scans)
    assert not [n for n in scans if n["Node Type"] == "Seq Scan"], "the claim scans the table"
    assert read <= 600, f"a claim of 100 read {read} rows"


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in _nodes(child))]
