"""Nobody counts re-places: a pod that can never start is placed again for ever (R20)."""

from typing import Any

from dispatcher.store import recovery
from tests.broken import Put


def apply(put: Put) -> None:
    right = recovery.RePlacePolicy.__init__

    def init(self: recovery.RePlacePolicy, *arguments: Any, **options: Any) -> None:
        right(self, *arguments, **{**options, "bound": 1000})

    put(recovery.RePlacePolicy, "__init__", init)
