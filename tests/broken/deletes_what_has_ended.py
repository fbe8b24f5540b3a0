"""The planner tidies ended rows away: nobody can tell any more what became of them."""

from datetime import datetime

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher import store
from dispatcher.schema import ENDED, task_instances
from dispatcher.store.common import t
from tests.broken import Put


def apply(put: Put) -> None:
    right = store.end_finished_runs

    async def end_finished_runs(connection: AsyncConnection, *, now: datetime) -> int:
        ended = await right(connection, now=now)
        await connection.execute(delete(task_instances).where(t.state.in_(ENDED)))
        return ended

    put(store, "end_finished_runs", end_finished_runs)
