"""dispatch_failed leaves `max_tries` alone: the planner reads it as a failed try with retries left (R7)."""

from typing import Any

from dispatcher.store import settlements
from dispatcher.store.common import t
from tests.broken import Put


class Columns:
    """`max_tries=t.try_number` becomes `max_tries=t.max_tries`."""

    def __getattr__(self, name: str) -> Any:
        return t["max_tries" if name == "try_number" else name]


def apply(put: Put) -> None:
    put(settlements, "t", Columns())
