"""A task that asks to be called again later pays for it with one of its user's retries (R21)."""

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher import store
from dispatcher.schema import State, task_instances
from dispatcher.store.common import NEXT_EPOCH, count, t
from tests.broken import Put


def apply(put: Put) -> None:
    async def plan_due_reschedules(connection: AsyncConnection, *, now: object) -> int:
        due = update(task_instances).where(t.state == State.UP_FOR_RESCHEDULE, t.next_offer_at <= now)
        values = {"state": State.SCHEDULED, "try_number": t.try_number + 1, "max_tries": t.max_tries + 1}
        return await count(connection, due.values(**NEXT_EPOCH, **values, dispatch_unavailable_since=None))

    put(store, "plan_due_reschedules", plan_due_reschedules)
