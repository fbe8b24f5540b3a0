"""The database counts a lease of 15 s, the agent was told 90 s: a healthy task is placed again (R15)."""

from datetime import timedelta
from typing import Any

from dispatcher.reports import Reports
from tests.broken import Put


def apply(put: Put) -> None:
    right = Reports.__init__

    def init(self: Reports, *arguments: Any, **options: Any) -> None:
        right(self, *arguments, **options)
        self._lease = timedelta(seconds=15)

    put(Reports, "__init__", init)
