"""What moves rows on without a create: dead claims, due retries and reschedules, the end of runs (R20, R21)."""

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher import store
from dispatcher.clock import Now

log = structlog.get_logger(__name__)


async def plan(engine: AsyncEngine, clock: Now) -> None:
    """One round of the leader's planning. Each statement is a transaction of its own: none waits for another."""
    async with engine.begin() as connection:
        dead = await store.re_offer_dead_claims(connection, now=clock.now())
    if dead:
        log.warning("claims.died", rows=len(dead), first=dead[0])
    for statement in (store.plan_due_retries, store.plan_due_reschedules, store.end_finished_runs):
        async with engine.begin() as connection:
            await statement(connection, now=clock.now())
