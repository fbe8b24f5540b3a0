"""Settle decisions in groups: while one transaction is under way, the next group gathers (as a WAL does)."""

import asyncio
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher import store
from dispatcher.clock import Now
from dispatcher.rules import Decision, ReOffer
from dispatcher.seams import Seam, reach

log = structlog.get_logger(__name__)

_RETRY_FIRST_S, _RETRY_MAX_S = 0.1, 2.0


@dataclass(slots=True)
class _Waiting:
    settlement: store.Settlement
    until: datetime
    done: asyncio.Future[bool]


class Settler:
    """`settle` returns whether the row was still current. It rides out a database that is away until the
    claim is dead; from then on the row belongs to whoever re-offers it (R20), and nothing is lost."""

    def __init__(self, engine: AsyncEngine, clock: Now, *, group: int = 500) -> None:
        self._engine = engine
        self._clock = clock
        self._group = group
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    async def settle(self, claim: store.Claim, decision: Decision) -> bool:
        """Write one decision down under its claim's epoch (R13)."""
        reach(Seam.BEFORE_SETTLE)
        if isinstance(decision, ReOffer):
            reach(Seam.IN_RE_OFFER)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(store.Settlement(claim.id, claim.epoch, decision), claim.until, done))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        return await done

    async def _write(self) -> None:
        retry_s = _RETRY_FIRST_S
        while self._waiting:
            group, self._waiting = self._waiting[: self._group], self._waiting[self._group :]
            try:
                await self._commit(group)
                retry_s = _RETRY_FIRST_S
            except (SQLAlchemyError, OSError) as error:
                log.warning("settle.database_away", rows=len(group), error=type(error).__name__)
                self._waiting = self._without_dead_claims(group) + self._waiting
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, _RETRY_MAX_S)
            except Exception as error:
                for one in group:
                    if not one.done.done():
                        one.done.set_exception(error)

    async def _commit(self, group: list[_Waiting]) -> None:
        try:
            current = await self._settle_all(group)
        except (IntegrityError, DataError) as error:
            # The database refuses a value or a state: a bug. It must not hold up the other rows of its group,
            # and it surfaces as a claim that dies.
            if len(group) > 1:
                for one in group:
                    await self._commit([one])
                return
            log.error("bug.settle", row=group[0].settlement.row_id, error=str(error.orig))
            current = set()
        for one in group:
            if not one.done.done():
                one.done.set_result(one.settlement.row_id in current)

    async def _settle_all(self, group: list[_Waiting]) -> set[int]:
        async with self._engine.begin() as connection:
            current = await store.settle_if_current(
                connection, (one.settlement for one in group), now=self._clock.now()
            )
            reach(Seam.IN_SETTLE)
            return current

    def _without_dead_claims(self, group: list[_Waiting]) -> list[_Waiting]:
        now = self._clock.now()
        for one in group:
            if one.until <= now and not one.done.done():
                log.warning("settle.claim_died", row=one.settlement.row_id, epoch=one.settlement.epoch)
                one.done.set_result(False)
        return [one for one in group if not one.done.done()]
