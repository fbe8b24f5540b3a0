"""The dispatcher counts on the machine's wall clock: when somebody sets it, leases and windows end (R23)."""

from dispatcher import clock
from tests.broken import Put
from tests.simulation.process import wall_seconds


def apply(put: Put) -> None:
    put(clock, "local_seconds", wall_seconds)
