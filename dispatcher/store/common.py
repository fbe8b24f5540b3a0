"""What every statement shares: the columns, the habits of R10, the guard of R13, a batch as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import DateTime, TableValuedAlias, Update, and_, cast, column, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import TypeEngine

from dispatcher.schema import DISPATCHABLE, runs, task_instances

t = task_instances.c

NEXT_EPOCH: Mapping[str, Any] = {
    "attempt_epoch": t.attempt_epoch + 1,
    "pod_name": None,
    "pod_uid": None,
    "agent_nonce": None,
}
UNCLAIMED: Mapping[str, Any] = {"claimed_by": None, "claim_until": None}
NEW_EPISODE: Mapping[str, Any] = {"dispatch_attempts": 0, "dispatch_unavailable_since": None}


TIMESTAMP = DateTime(timezone=True)


def batch(**columns: tuple[TypeEngine[Any] | type[TypeEngine[Any]], Sequence[Any]]) -> TableValuedAlias:
    """A batch as a table `v`, from one array a column: the statement's text is the same for any batch size."""
    arrays = [cast(literal(list(values), ARRAY(kind)), ARRAY(kind)) for kind, values in columns.values()]
    return (
        func.unnest(*arrays)
        .table_valued(*(column(name, kind) for name, (kind, _) in columns.items()), name="v")
        .render_derived(name="v")
    )


def is_current(v: TableValuedAlias) -> ColumnElement[bool]:
    """The guard of every settlement (R13): the same epoch, and nobody has moved the row on."""
    return and_(t.id == v.c.row_id, t.attempt_epoch == v.c.epoch, t.state.in_(DISPATCHABLE))


async def lock_runs(connection: AsyncConnection, condition: ColumnElement[bool]) -> list[int]:
    """Lock the runs that meet a condition, but for those that somebody else is at; their ids."""
    locked = await connection.execute(select(runs.c.id).where(condition).with_for_update(skip_locked=True))
    return list(locked.scalars())


async def ids(connection: AsyncConnection, statement: ReturningUpdate[Any]) -> set[int]:
    return set((await connection.execute(statement)).scalars())


async def count(connection: AsyncConnection, statement: Update) -> int:
    return (await connection.execute(statement)).rowcount
