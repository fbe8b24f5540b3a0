"""What people and metrics read. Nothing here locks or moves a row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import and_, exists, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher.schema import DISPATCHABLE, State, runs, task_instances
from dispatcher.store.common import t

_SHOWN = (
    t.id,
    t.run_id,
    t.task_key.label("key"),
    t.state,
    t.due_at,
    t.next_offer_at,
    t.try_number,
    t.max_tries,
    t.retries,
    t.attempt_epoch,
    t.dispatch_attempts,
    t.dispatch_unavailable_since,
    t.reason,
    t.pod_name,
    t.pod_uid,
    t.started_at,
    t.ended_at,
)
_HOLDS = and_(t.state.in_(DISPATCHABLE), t.dispatch_unavailable_since.is_not(None))

Shown = Mapping[str, Any]


async def run_by_id(connection: AsyncConnection, run_id: int) -> dict[str, Any] | None:
    """A run with its rows, in the order of their submission."""
    columns = (runs.c.id, runs.c.key, runs.c.name, runs.c.state, runs.c.labels, runs.c.created_at, runs.c.ended_at)
    found = (await connection.execute(select(*columns).where(runs.c.id == run_id))).mappings().one_or_none()
    if found is None:
        return None
    rows = await connection.execute(select(*_SHOWN).where(t.run_id == run_id).order_by(t.id))
    return {**found, "tasks": [dict(row) for row in rows.mappings()]}


async def tasks_page(
    connection: AsyncConnection,
    *,
    limit: int,
    after_id: int = 0,
    state: State | None = None,
    reason: str | None = None,
    run_id: int | None = None,
) -> list[dict[str, Any]]:
    """Task instances in the order of their ids, from behind `after_id`; `reason` is the beginning of one."""
    chosen = select(*_SHOWN).where(t.id > after_id).order_by(t.id).limit(limit)
    if state is not None:
        chosen = chosen.where(t.state == state)
    if reason is not None:
        chosen = chosen.where(t.reason.startswith(reason, autoescape=True))
    if run_id is not None:
        chosen = chosen.where(t.run_id == run_id)
    return [dict(row) for row in (await connection.execute(chosen)).mappings()]


@dataclass(frozen=True, slots=True)
class Holding:
    """The rows that ride an outage out, as the rows themselves say it (R8)."""

    rows: int
    since: datetime | None = None
    first: dict[str, Any] | None = None
    """The row that has held for longest: the first to fail, if the outage lasts (R4)."""
    answered_since: bool = False
    """A pod was placed after the newest of them began to hold: the API answers, these rows are poison."""


async def holding(connection: AsyncConnection) -> Holding:
    count, since, newest = (
        await connection.execute(
            select(
                func.count(),
                func.min(t.dispatch_unavailable_since),
                func.max(t.dispatch_unavailable_since),
            ).where(_HOLDS)
        )
    ).one()
    if not count:
        return Holding(0)
    first = await connection.execute(
        select(*_SHOWN).where(_HOLDS).order_by(t.dispatch_unavailable_since, t.next_offer_at, t.id).limit(1)
    )
    placed = await connection.execute(
        select(exists().where(task_instances.c.pod_uid.is_not(None), t.queued_at > newest))
    )
    row = first.mappings().one_or_none()  # it may have been placed since it was counted
    return Holding(count, since, dict(row) if row is not None else None, bool(placed.scalar_one()))


@dataclass(frozen=True, slots=True)
class Figures:
    """What /metrics says about the rows."""

    by_state: Mapping[State, int] = field(default_factory=dict)
    holding: int = 0
    oldest_unavailable_since: datetime | None = None
    oldest_due_at: datetime | None = None


async def figures(connection: AsyncConnection, *, now: datetime) -> Figures:
    """One pass over the rows. A row's due time is that of its present episode: a retry is due when scheduled."""
    due_at = func.greatest(t.due_at, t.scheduled_at)
    by_state = (
        await connection.execute(
            select(
                t.state,
                func.count().label("rows"),
                func.count().filter(_HOLDS).label("holding"),
                func.min(t.dispatch_unavailable_since).filter(_HOLDS).label("since"),
                func.min(due_at).filter(t.state.in_(DISPATCHABLE), due_at <= now).label("due_at"),
            ).group_by(t.state)
        )
    ).all()
    return Figures(
        by_state={state: next((row.rows for row in by_state if row.state == state), 0) for state in State},
        holding=sum(row.holding for row in by_state),
        oldest_unavailable_since=min((row.since for row in by_state if row.since), default=None),
        oldest_due_at=min((row.due_at for row in by_state if row.due_at), default=None),
    )


async def schema_is_there(connection: AsyncConnection) -> None:
    """Read nothing from the newest column. Raises ProgrammingError where the migrations have not run."""
    await connection.execute(select(t.dispatch_unavailable_since).limit(0))
