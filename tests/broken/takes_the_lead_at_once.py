"""A replica leads without waiting for the lease of the one before it (R19)."""

from datetime import datetime, timedelta

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher import store
from dispatcher.schema import leadership
from tests.broken import Put


def apply(put: Put) -> None:
    right = store.lead_if_free

    async def lead_if_free(connection: AsyncConnection, *, now: datetime, holder: str, lease_s: float) -> int | None:
        over = update(leadership).where(leadership.c.holder != holder).values(expires_at=now - timedelta(seconds=1))
        await connection.execute(over)
        return await right(connection, now=now, holder=holder, lease_s=lease_s)

    put(store, "lead_if_free", lead_if_free)
