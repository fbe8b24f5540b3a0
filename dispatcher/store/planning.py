"""The planner's statements: retries, reschedules, the end of runs (R21)."""

from datetime import datetime

from sqlalchemy import case, exists, not_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher.rules import Rank
from dispatcher.schema import ENDED, RunState, State, runs, task_instances
from dispatcher.store.common import NEW_EPISODE, NEXT_EPOCH, count, t


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
    """A run ends when all its rows have: failed if any of them failed (R21). Re-checked in the statement (R19)."""
    rows = task_instances.alias("rows")
    mine = rows.c.run_id == runs.c.id
    return await count(
        connection,
        update(runs)
        .where(
            runs.c.state == RunState.RUNNING,
            exists().where(mine),
            not_(exists().where(mine, rows.c.state.not_in(ENDED))),
        )
        .values(
            ended_at=now,
            state=case((exists().where(mine, rows.c.state == State.FAILED), RunState.FAILED), else_=RunState.SUCCESS),
        ),
    )
