"""Agents' reports: may this process run, does it still, how did it end (R11, R12, R14–R16).

Any replica answers, leader or not: the answer is in the row (R19). `Refused` is said only when the row proves it;
everything that went wrong on our side is an exception, which the API turns into a 503, and the agent asks again.
"""

from dataclasses import dataclass
from datetime import timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.clock import Now
from dispatcher.schema import DISPATCHABLE, State
from dispatcher.store import reports as store
from dispatcher.store.reports import End, Reporter, Standing

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The write happened, or had happened before and its answer was lost."""

    state: State


@dataclass(frozen=True, slots=True)
class Refused:
    """The row proves that this process must not run, or that its report is stale (R14)."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Unproven:
    """Nothing was written and the row proves nothing: it moved between two statements, or there is none."""

    row_exists: bool


Answer = Accepted | Refused | Unproven


class Reports:
    """Answers reports. Raises SQLAlchemyError, OSError or TimeoutError when the database is away."""

    def __init__(self, engine: AsyncEngine, clock: Now, *, lease_s: float, replace_after_s: float) -> None:
        self._engine = engine
        self._clock = clock
        self._lease = timedelta(seconds=lease_s)
        self._replace_after_s = replace_after_s

    async def running(self, who: Reporter) -> Answer:
        """May this process start user code? Accepted again for the same process (R12)."""
        now = self._clock.now()
        async with self._engine.begin() as connection:
            if await store.run_if_current_or_own(connection, who, now=now, lease_until=now + self._lease):
                return Accepted(State.RUNNING)
            found = await store.standing(connection, who.row_id)
        return _judge(who, found)

    async def heartbeat(self, who: Reporter) -> Answer:
        """Does it still? Renews the lease (R15)."""
        now = self._clock.now()
        async with self._engine.begin() as connection:
            if await store.renew_if_own(connection, who, lease_until=now + self._lease):
                return Accepted(State.RUNNING)
            found = await store.standing(connection, who.row_id)
        return _judge(who, found)

    async def finished(
        self, who: Reporter, end: End, *, exit_code: int | None = None, reschedule_after_s: float = 0.0
    ) -> Answer:
        """How it ended. The same end again is accepted again (R16)."""
        now = self._clock.now()
        async with self._engine.begin() as connection:
            state = await store.end_if_own(
                connection,
                who,
                end,
                now=now,
                exit_code=exit_code,
                reschedule_after_s=reschedule_after_s,
                replace_after_s=self._replace_after_s,
            )
            if state is not None:
                log.info("task.ended", row=who.row_id, epoch=who.epoch, end=end, state=state, exit_code=exit_code)
                return Accepted(state)
            found = await store.standing(connection, who.row_id)
        if found is not None and _says_the_same(who, found, end, exit_code):
            return Accepted(found.state)
        return _judge(who, found)


_RECORDED: dict[End, frozenset[State]] = {
    End.SUCCESS: frozenset({State.SUCCESS}),
    End.FAILURE: frozenset({State.FAILED, State.UP_FOR_RETRY}),
    End.RESCHEDULE: frozenset({State.UP_FOR_RESCHEDULE}),
    End.LOST: frozenset(),  # its re-place bumped the epoch: a repeat is stale, and a refusal is an answer too
}


def _says_the_same(who: Reporter, found: Standing, end: End, exit_code: int | None) -> bool:
    mine = (found.epoch, found.pod_uid, found.nonce) == (who.epoch, who.pod_uid, who.nonce)
    return mine and found.state in _RECORDED[end] and found.exit_code == exit_code


def _judge(who: Reporter, found: Standing | None) -> Answer:
    """What a row that a report did not fit proves about it (R14). Pure.

    Scheduled and queued under the same epoch prove nothing, whatever the report: RUNNING may still be accepted.
    """
    if found is None:
        return Unproven(row_exists=False)
    if found.epoch != who.epoch:
        return Refused("stale_epoch", f"epoch {who.epoch} is over: the row is at epoch {found.epoch}")
    if found.pod_uid is not None and found.pod_uid != who.pod_uid:
        return Refused("other_pod", "another pod has this attempt")
    if found.nonce is not None and found.nonce != who.nonce:
        return Refused("other_process", "another process of this pod has this attempt")
    if found.state not in (*DISPATCHABLE, State.RUNNING):
        return Refused("not_running", f"the row is {found.state}")
    return Unproven(row_exists=True)
