"""The orphan-run reaper does not count a scheduled row as live: an outage fails the run under it (R21)."""

from dispatcher.schema import State
from dispatcher.store import recovery
from tests.broken import Put


def apply(put: Put) -> None:
    put(recovery, "LIVE", (State.QUEUED, State.RUNNING))
