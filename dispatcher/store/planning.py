"""The planner's statements: retries, reschedules, the end of runs (R21)."""

from datetime import datetime

from sqlalchemy import and_, case, exists, not_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher.rules import Rank
from dispatcher.schema import ENDED, RunState, State, runs, task_instances
from dispatcher.store.common import NEW_EPISODE, NEXT_EPOCH, count, lock_runs, t


async def plan_due_retries(connection: AsyncConnection, *, now: datetime) -> int:
    """`up_for_retry` rows whose delay has passed start their next try, as a new dispatch episode (R8, R21)."""
    return await count(
        connection,
        update(task_instances)
        .where(t.state == State.UP_FOR_RETRY, t.next_offer_at <= now)
        .values(
            **NEXT_EPOCH,
            **NEW_EPISODE,
            state=State.SCHEDULED,
            scheduled_at=now,
            offer_rank=int(Rank.FIRST),
            try_number=t.try_number + 1,
            infra_replaces=0,
            reason="scheduled: next try",
        ),
    )


async def plan_due_reschedules(connection: AsyncConnection, *, now: datetime) -> int:
    """`up_for_reschedule` rows come back as the same try; the outage start is reset here, once (R8, R21)."""
    return await count(
        connection,
        update(task_instances)
        .where(t.state == State.UP_FOR_RESCHEDULE, t.next_offer_at <= now)
        .values(
            **NEXT_EPOCH,
            state=State.SCHEDULED,
            scheduled_at=now,
            offer_rank=int(Rank.FIRST),
            dispatch_unavailable_since=None,
            reason="scheduled: rescheduled by the task",
        ),
    )


async def end_finished_runs(connection: AsyncConnection, *, now: datetime) -> int:
    """A run ends when all its rows have: failed if any of them failed (R21).

    Two statements in one transaction: the first takes the runs' locks, the second sees what was committed before
    they were had, such as a clear that brought a row to life again. The condition is re-checked in it (R19).
    """
    rows = task_instances.alias("rows")
    mine = rows.c.run_id == runs.c.id
    all_ended = and_(
        runs.c.state == RunState.RUNNING,
        exists().where(mine),
        not_(exists().where(mine, rows.c.state.not_in(ENDED))),
    )
    locked = await lock_runs(connection, all_ended)
    if not locked:
        return 0
    failed = exists().where(mine, rows.c.state == State.FAILED)
    return await count(
        connection,
        update(runs)
        .where(runs.c.id.in_(locked), all_ended)
        .values(ended_at=now, state=case((failed, RunState.FAILED), else_=RunState.SUCCESS)),
    )
