"""A clear takes a running row too: its agent runs on while the next try is placed (R21)."""

from sqlalchemy import true

from dispatcher.schema import State, task_instances
from dispatcher.store import operators
from tests.broken import Put


class NoState:
    """`t.state != RUNNING` holds always."""

    def __ne__(self, other: object) -> object:  # type: ignore[override]
        return true() if other == State.RUNNING else task_instances.c.state != other

    def in_(self, states: object) -> object:
        return task_instances.c.state.in_(states)  # type: ignore[arg-type]

    __hash__ = object.__hash__


class Columns:
    state = NoState()

    def __getattr__(self, name: str) -> object:
        return task_instances.c[name]


def apply(put: Put) -> None:
    put(operators, "t", Columns())
