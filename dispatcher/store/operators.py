"""What operators do to rows: clear, cancel, pause. Refused for nothing but what would break the fence (R21)."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import and_, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher.rules import Rank
from dispatcher.schema import LIVE, RunState, State, control, runs, task_instances
from dispatcher.store.common import NEW_EPISODE, NEXT_EPOCH, TIMESTAMP, UNCLAIMED, count, ids, t


async def not_running(connection: AsyncConnection, row_ids: Sequence[int]) -> set[int]:
    """Those of these rows that exist and are not running: what a clear would take."""
    found = await connection.execute(select(t.id).where(t.id.in_(row_ids), t.state != State.RUNNING))
    return set(found.scalars())


async def clear_if_not_running(connection: AsyncConnection, row_ids: Sequence[int], *, now: datetime) -> set[int]:
    """Start a new try of each row, with its user's retries restored and both dispatch columns reset (R21).

    Not offered before a lease that still runs: an agent that is cut off may still run its user code (R15). The
    run is opened again.

    :returns: the ids that were cleared; a missing one is running, or does not exist.
    """
    await connection.execute(  # first the runs, so that none of them ends while its rows come to life again
        select(runs.c.id)
        .where(runs.c.id.in_(select(t.run_id).where(t.id.in_(row_ids))))
        .order_by(runs.c.id)
        .with_for_update()
    )
    cleared = await ids(
        connection,
        update(task_instances)
        .where(t.id.in_(row_ids), t.state != State.RUNNING)
        .values(
            **NEXT_EPOCH,
            **UNCLAIMED,
            **NEW_EPISODE,
            state=State.SCHEDULED,
            try_number=t.try_number + 1,
            max_tries=t.try_number + 1 + t.retries,
            scheduled_at=now,
            next_offer_at=func.greatest(literal(now, TIMESTAMP), t.lease_until),
            offer_rank=int(Rank.FIRST),
            infra_replaces=0,
            first_reschedule_at=None,
            ended_at=None,
            exit_code=None,
            reason="scheduled: cleared",
        )
        .returning(t.id),
    )
    if cleared:
        await connection.execute(
            update(runs)
            .where(runs.c.id.in_(select(t.run_id).where(t.id.in_(cleared))), runs.c.state != RunState.RUNNING)
            .values(state=RunState.RUNNING, ended_at=None)
        )
    return cleared


async def cancel_live_rows(connection: AsyncConnection, run_id: int, *, now: datetime) -> int:
    """Fail what is not ended yet of a run, also in an outage: its agents learn it from their next report (R21).

    `lease_until` is kept, so that a later clear waits for an execution that may still be under way.
    """
    cancelled = await count(
        connection,
        update(task_instances)
        .where(t.run_id == run_id, t.state.in_(LIVE))
        .values(
            **NEXT_EPOCH,
            **UNCLAIMED,
            state=State.FAILED,
            max_tries=t.try_number,
            ended_at=now,
            reason="cancelled",
        ),
    )
    await connection.execute(
        update(runs)
        .where(runs.c.id == run_id, runs.c.state == RunState.RUNNING)
        .values(state=RunState.FAILED, ended_at=now)
    )
    return cancelled


async def pause(connection: AsyncConnection, *, now: datetime) -> None:
    """Claim nothing until `resume`. Outage starts are kept (R8)."""
    paused = insert(control).values(id=1, paused_at=now)
    await connection.execute(
        paused.on_conflict_do_update(
            index_elements=[control.c.id],
            set_={"paused_at": func.coalesce(control.c.paused_at, paused.excluded.paused_at)},
        )
    )


async def resume(
    connection: AsyncConnection, *, now: datetime, window_s: float, restart_windows: bool
) -> tuple[bool, int]:
    """Claim again. A pause keeps outage starts, so windows may have run out meanwhile (R8).

    :param restart_windows: let the windows of those rows begin anew at their next Unavailable.
    :returns: whether it was paused; how many rows would fail at their next Unavailable.
    """
    resumed = await connection.execute(update(control).where(control.c.paused_at.is_not(None)).values(paused_at=None))
    spent_before = now - func.make_interval(0, 0, 0, 0, 0, 0, window_s)
    spent = and_(or_(t.state == State.SCHEDULED, t.state == State.QUEUED), t.dispatch_unavailable_since <= spent_before)
    if restart_windows:
        statement = update(task_instances).where(spent).values(dispatch_unavailable_since=None)
        return bool(resumed.rowcount), await count(connection, statement)
    at_risk = (await connection.execute(select(func.count()).select_from(task_instances).where(spent))).scalar_one()
    return bool(resumed.rowcount), at_risk
