"""What an agent's report writes: guarded to the epoch, the pod and the process that the row names (R11, R12, R16)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, assert_never

from sqlalchemy import and_, case, func, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.elements import ColumnElement

from dispatcher.rules import Rank
from dispatcher.schema import DISPATCHABLE, State, task_instances
from dispatcher.store.common import NEW_EPISODE, NEXT_EPOCH, TIMESTAMP, UNCLAIMED, t


class End(StrEnum):
    """How an attempt ended, in its agent's words (R16)."""

    SUCCESS = "success"
    FAILURE = "failure"
    RESCHEDULE = "reschedule"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports: one process of one pod of one attempt (R11)."""

    row_id: int
    epoch: int
    pod_uid: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A row as a refusal needs to know it (R14)."""

    state: State
    epoch: int
    pod_uid: str | None
    nonce: str | None
    exit_code: int | None


def _owned_by(who: Reporter) -> ColumnElement[bool]:
    return and_(
        t.id == who.row_id,
        t.state == State.RUNNING,
        t.attempt_epoch == who.epoch,
        t.pod_uid == who.pod_uid,
        t.agent_nonce == who.nonce,
    )


async def run_if_current_or_own(
    connection: AsyncConnection, who: Reporter, *, now: datetime, lease_until: datetime
) -> bool:
    """RUNNING, in one UPDATE: a first report meets scheduled or queued and a pod that is unknown or its own (R11);
    a repeat by the same process renews the lease (R12).

    The lease never shrinks: a request that waited for its turn carries an older `now` than one that overtook it.
    """
    first = and_(
        t.id == who.row_id,
        t.attempt_epoch == who.epoch,
        t.state.in_(DISPATCHABLE),
        or_(t.pod_uid.is_(None), t.pod_uid == who.pod_uid),
    )
    accepted = await connection.execute(
        update(task_instances)
        .where(or_(first, _owned_by(who)))
        .values(
            **UNCLAIMED,
            state=State.RUNNING,
            pod_uid=who.pod_uid,
            agent_nonce=who.nonce,
            lease_until=func.greatest(t.lease_until, literal(lease_until, TIMESTAMP)),
            started_at=case((t.state == State.RUNNING, t.started_at), else_=literal(now, TIMESTAMP)),
            dispatch_unavailable_since=None,
            infra_replaces=0,
            exit_code=None,
            reason="running",
        )
    )
    return bool(accepted.rowcount)


async def renew_if_own(connection: AsyncConnection, who: Reporter, *, lease_until: datetime) -> bool:
    """A heartbeat: the lease of a running row, by the process that runs it (R15)."""
    renewed = await connection.execute(
        update(task_instances)
        .where(_owned_by(who))
        .values(lease_until=func.greatest(t.lease_until, literal(lease_until, TIMESTAMP)))
    )
    return bool(renewed.rowcount)


async def end_if_own(
    connection: AsyncConnection,
    who: Reporter,
    end: End,
    *,
    now: datetime,
    exit_code: int | None,
    reschedule_after_s: float,
    replace_after_s: float,
) -> State | None:
    """Record the end of a running row, reported by the process that ran it, also past its lease (R16).

    :returns: the row's new state; None when the row is not running under this process.
    """
    ended = await connection.execute(
        update(task_instances)
        .where(_owned_by(who))
        .values(**_what_follows(end, now, exit_code, reschedule_after_s, replace_after_s))
        .returning(t.state)
    )
    state: str | None = ended.scalar_one_or_none()
    return State(state) if state is not None else None


def _what_follows(
    end: End, now: datetime, exit_code: int | None, reschedule_after_s: float, replace_after_s: float
) -> dict[str, Any]:
    # The group was killed and waited for before this was sent (R16): no lease runs on.
    over = {"lease_until": None, "exit_code": exit_code}
    match end:
        case End.SUCCESS:
            return {**over, "state": State.SUCCESS, "ended_at": now, "reason": "ended: success"}
        case End.FAILURE:
            retry = t.try_number < t.max_tries
            code = "" if exit_code is None else f": exit code {exit_code}"
            return {
                **over,
                "state": case((retry, State.UP_FOR_RETRY), else_=State.FAILED),
                "ended_at": case((retry, None), else_=literal(now, TIMESTAMP)),
                "next_offer_at": case(
                    (retry, literal(now, TIMESTAMP) + func.make_interval(0, 0, 0, 0, 0, 0, t.retry_delay)),
                    else_=t.next_offer_at,
                ),
                "reason": case((retry, f"waits for its retry{code}"), else_=f"failed{code}"),
            }
        case End.RESCHEDULE:
            return {
                **over,
                "state": State.UP_FOR_RESCHEDULE,
                "next_offer_at": now + timedelta(seconds=reschedule_after_s),
                "first_reschedule_at": func.coalesce(t.first_reschedule_at, literal(now, TIMESTAMP)),
                "reason": "rescheduled by the task",
            }
        case End.LOST:
            # An infra re-place: the same try, a new episode. RUNNING has reset the count, so this is the first in
            # a row, and R20's bound of six cannot be reached from here.
            return {
                **over,
                **NEXT_EPOCH,
                **NEW_EPISODE,
                "state": State.SCHEDULED,
                "scheduled_at": now,
                "next_offer_at": now + timedelta(seconds=replace_after_s),
                "offer_rank": int(Rank.FIRST),
                "infra_replaces": t.infra_replaces + 1,
                "reason": "re-placed: its agent was lost",
            }
        case _:  # pragma: no cover
            assert_never(end)


async def standing(connection: AsyncConnection, row_id: int) -> Standing | None:
    """The row as it stands now: the proof that a refusal needs (R14). None: there is no such row."""
    found = await connection.execute(
        select(t.state, t.attempt_epoch, t.pod_uid, t.agent_nonce, t.exit_code).where(t.id == row_id)
    )
    row = found.one_or_none()
    return Standing(State(row[0]), row[1], row[2], row[3], row[4]) if row is not None else None
