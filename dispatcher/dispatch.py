"""The two dispatch paths (R18), and the main path that they share.

A claimed row is offered to the API: create → classify → decide → settle. `Offers.offer` is that sentence; what
differs between the tick and the buffered workers is only who calls it, and when.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher import store
from dispatcher.clock import Now
from dispatcher.executors import Attempt, Executor
from dispatcher.rules import Decision, Disposition, Outcome, Policy, Verdict, decide
from dispatcher.seams import Seam, reach
from dispatcher.settler import Settler

log = structlog.get_logger(__name__)


class Witness(Protocol):
    """Is told of every settled offer: metrics, the outcome log, the API's health."""

    def offered(self, claim: store.Claim, outcome: Outcome, decision: Decision, settled: bool) -> None: ...


class Offers:
    """Claims rows and carries each of them from its create to its settlement. Shared by both paths."""

    def __init__(
        self,
        *,
        engine: AsyncEngine,
        clock: Now,
        executor: Executor,
        policy: Policy,
        replica: str,
        claim_s: float,
        mark_queued: bool,
        witness: Witness,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._executor = executor
        self._policy = policy
        self._replica = replica
        self._claim_s = claim_s
        self._mark_queued = mark_queued
        self._witness = witness
        self._settler = Settler(engine, clock)

    async def claim(self, limit: int) -> Sequence[store.Claim]:
        """Claim up to `limit` due rows, each under a new epoch. The transaction ends before any create (R10)."""
        now = self._clock.now()
        async with self._engine.begin() as connection:
            claims = await store.claim_due(
                connection,
                now=now,
                limit=limit,
                replica=self._replica,
                until=now + timedelta(seconds=self._claim_s),
                mark_queued=self._mark_queued,
            )
        if claims:
            reach(Seam.AFTER_CLAIM)
        return claims

    async def offer(self, claim: store.Claim) -> None:
        """Create, classify, decide, settle."""
        outcome = await self._executor.create(_attempt(claim))
        reach(Seam.AFTER_CREATE)
        await self._settle(claim, outcome)

    async def defer(self, claim: store.Claim, cause: str) -> None:
        """Settle a row that never reached the API, as Deferred (R8, R18, R25)."""
        now = self._clock.now()
        await self._settle(claim, Outcome(Verdict(Disposition.DEFERRED, cause, "R18"), now, now))

    async def _settle(self, claim: store.Claim, outcome: Outcome) -> None:
        decision = decide(claim.row, outcome, self._policy)
        settled = await self._settler.settle(claim, decision)
        self._witness.offered(claim, outcome, decision, settled)


class Path(Protocol):
    """How claimed rows get to `Offers.offer`."""

    async def room(self) -> int:
        """How many rows may be claimed now; waits until it is at least one."""
        ...

    def take(self, claims: Sequence[store.Claim]) -> None: ...

    async def drain(self) -> None:
        """Give back what has not been sent, and see out the creates under way (R25)."""
        ...


class TickPath:
    """The leader's loop creates concurrently, in at most `slots` creates at once, and never waits for them."""

    def __init__(self, offers: Offers, *, slots: int) -> None:
        self._offers = offers
        self._slots = slots
        self._under_way: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()

    async def room(self) -> int:
        while len(self._under_way) >= self._slots:
            self._freed.clear()
            await self._freed.wait()
        return self._slots - len(self._under_way)

    def take(self, claims: Sequence[store.Claim]) -> None:
        for claim in claims:
            task = asyncio.create_task(self._offers.offer(claim), name=f"offer-{claim.id}-{claim.epoch}")
            self._under_way.add(task)
            task.add_done_callback(self._ended)

    async def drain(self) -> None:
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._freed.set()
        _log_a_bug(task)


class BufferedPath:
    """A bounded buffer feeds `workers` that create. The rows in it are already marked queued."""

    def __init__(self, offers: Offers, clock: Now, *, workers: int, buffer: int, wait_s: float) -> None:
        self._offers = offers
        self._clock = clock
        self._places = buffer
        self._bound = timedelta(seconds=wait_s)
        self._buffer: deque[tuple[store.Claim, datetime]] = deque()
        self._filled = asyncio.Semaphore(0)
        self._freed = asyncio.Event()
        self._draining = False
        self._workers = [asyncio.create_task(self._work(), name=f"worker-{n}") for n in range(workers)]
        for worker in self._workers:
            worker.add_done_callback(_log_a_bug)

    async def room(self) -> int:
        while len(self._buffer) >= self._places:
            self._freed.clear()
            await self._freed.wait()
        return self._places - len(self._buffer)

    def take(self, claims: Sequence[store.Claim]) -> None:
        now = self._clock.now()
        for claim in claims:
            self._buffer.append((claim, now))
            self._filled.release()

    async def drain(self) -> None:
        self._draining = True
        for _ in self._workers:
            self._filled.release()
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            await self._filled.acquire()
            if not self._buffer:
                if self._draining:
                    return
                continue
            claim, buffered_at = self._buffer.popleft()
            self._freed.set()
            try:
                if self._draining:
                    await self._offers.defer(claim, "dispatcher stops")
                elif self._clock.now() - buffered_at > self._bound:
                    await self._offers.defer(claim, "waited in the buffer past its bound")
                else:
                    await self._offers.offer(claim)
            except Exception:  # a bug must not cost a worker; the claim dies and is re-offered (R3, R20)
                log.exception("bug.offer", row=claim.id, epoch=claim.epoch)


def _attempt(claim: store.Claim) -> Attempt:
    return Attempt(
        row_id=claim.id,
        epoch=claim.epoch,
        try_number=claim.try_number,
        run_name=claim.run_name,
        task_key=claim.task_key,
        namespace=claim.namespace,
        spec=claim.spec,
        executor=claim.executor,
    )


def _log_a_bug(task: asyncio.Task[None]) -> None:
    """No exception is lost: an offer never raises for what the outside does (R3)."""
    if not task.cancelled() and task.exception() is not None:
        log.error("bug.offer", task=task.get_name(), exc_info=task.exception())
