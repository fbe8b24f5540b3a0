"""A settlement looks at the row's state only: a stale replica's late answer settles somebody else's attempt (R13)."""

from sqlalchemy import TableValuedAlias, and_
from sqlalchemy.sql.elements import ColumnElement

from dispatcher.schema import DISPATCHABLE
from dispatcher.store import settlements
from dispatcher.store.common import t
from tests.broken import Put


def apply(put: Put) -> None:
    def is_current(v: TableValuedAlias) -> ColumnElement[bool]:
        return and_(t.id == v.c.row_id, t.state.in_(DISPATCHABLE))

    put(settlements, "is_current", is_current)
