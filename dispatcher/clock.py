"""The one clock of the dispatcher (R23): PostgreSQL's, carried on by a local one that runs through suspension."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection


class Now(Protocol):
    """What everything below the edge may know of time."""

    def now(self) -> datetime: ...


def local_seconds() -> float:
    """Seconds on a clock that never steps and runs through suspension, where the platform has one."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(boottime) if boottime is not None else time.monotonic()


class Clock:
    """`now()` is the database's time as last read plus what has passed here since.

    `sync` is to be called at least every 10 s; between two reads a replica's idea of now may differ from
    another's by the drift of its oscillator over that time, microseconds, plus half of a round trip.
    """

    def __init__(self) -> None:
        self._database_at = datetime.now(UTC)  # until the first sync; nothing is claimed before it
        self._local_at = local_seconds()

    def now(self) -> datetime:
        return self._database_at + timedelta(seconds=local_seconds() - self._local_at)

    async def sync(self, connection: AsyncConnection) -> None:
        """Read the database's clock; half of the round trip is taken as the reading's age."""
        before = local_seconds()
        database_at: datetime = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
        self._database_at = database_at
        self._local_at = (before + local_seconds()) / 2
