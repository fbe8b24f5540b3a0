"""One of any number of replicas ticks; which one is decided in PostgreSQL (R19).

A stale leader can do no harm: what it still writes is guarded by epoch and state (R13). Leadership therefore
only has to make one replica do the work, not to make two impossible.
"""

from datetime import datetime, timedelta

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher import store
from dispatcher.clock import Clock

log = structlog.get_logger(__name__)


class Leadership:
    """Held for `lease_s` from the last renewal; `renew` is to be called well within that.

    :param holder: must be new with each process, so that a restarted replica never renews a dead one's lease.
    """

    def __init__(self, engine: AsyncEngine, clock: Clock, *, holder: str, lease_s: float) -> None:
        self._engine = engine
        self._clock = clock
        self._holder = holder
        self._lease_s = lease_s
        self._expires_at: datetime | None = None
        self.term: int | None = None
        self.steady_since: datetime | None = None
        """Since when this replica has led without a gap and with its database; nothing is re-placed within one
        lease of it, so that agents whose heartbeats found nobody can report first (R20)."""

    @property
    def leads(self) -> bool:
        return self._expires_at is not None and self._clock.now() < self._expires_at

    async def renew(self) -> bool:
        """Renew or take the lease, and read the database's clock (R23). A database that is away is no error
        here: the lease lapses by itself, and with it the claiming."""
        try:
            async with self._engine.begin() as connection:
                await self._clock.sync(connection)
                now = self._clock.now()
                term = await store.lead_if_free(connection, now=now, holder=self._holder, lease_s=self._lease_s)
        except (SQLAlchemyError, OSError) as error:
            log.warning("leadership.database_away", error=type(error).__name__, leads=self.leads)
            self.steady_since = None
            return self.leads
        if term != self.term or self.steady_since is None:
            self.steady_since = now if term is not None else None
        if term != self.term:
            log.info("leadership.changed", leads=term is not None, term=term, holder=self._holder)
        self.term = term
        self._expires_at = now + timedelta(seconds=self._lease_s) if term is not None else None
        return self.leads

    async def resign(self) -> None:
        """Let another replica lead at once (R25); without a database the lease runs out instead."""
        term, self.term, self._expires_at, self.steady_since = self.term, None, None, None
        if term is None:
            return
        try:
            async with self._engine.begin() as connection:
                await store.resign_if_leading(connection, now=self._clock.now(), holder=self._holder, term=term)
        except (SQLAlchemyError, OSError) as error:
            log.warning("leadership.not_resigned", error=type(error).__name__)
