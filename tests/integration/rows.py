"""Rows for tests: a run with tasks, and a look at what became of one."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.schema import runs, task_instances

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A time of the test, in seconds from its beginning."""
    return NOW + timedelta(seconds=seconds)


class ManualClock:
    """A clock that stands until it is moved (R23)."""

    def __init__(self, now: datetime = NOW) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def to(self, seconds: float) -> None:
        self._now = at(seconds)


async def add_rows(engine: AsyncEngine, count: int = 1, **columns: Any) -> list[int]:
    """A run with `count` scheduled rows, due now; `columns` override."""
    values: dict[str, Any] = {
        "state": "scheduled",
        "due_at": NOW,
        "next_offer_at": NOW,
        "scheduled_at": NOW,
        "max_tries": 1,
        "namespace": "tasks",
        "spec": {"command": ["true"]},
        **columns,
    }
    async with engine.begin() as connection:
        run_id = (
            await connection.execute(
                insert(runs)
                .values(
                    key=f"run-{datetime.now(UTC).timestamp()}",
                    name="run",
                    state="running",
                    created_at=NOW,
                    body_digest="",
                )
                .returning(runs.c.id)
            )
        ).scalar_one()
        added = await connection.execute(
            insert(task_instances).returning(task_instances.c.id),
            [{**values, "run_id": run_id, "task_key": f"task-{n}"} for n in range(count)],
        )
        return sorted(added.scalars())


async def row(engine: AsyncEngine, row_id: int) -> Any:
    async with engine.connect() as connection:
        return (await connection.execute(select(task_instances).where(task_instances.c.id == row_id))).one()


async def set_row(engine: AsyncEngine, row_id: int, **columns: Any) -> None:
    async with engine.begin() as connection:
        await connection.execute(update(task_instances).where(task_instances.c.id == row_id).values(**columns))


def running(pod_uid: str = "uid-1", nonce: str = "nonce-1") -> dict[str, Any]:
    """The columns of a row whose pod has reported RUNNING."""
    return {
        "state": "running",
        "pod_uid": pod_uid,
        "agent_nonce": nonce,
        "lease_until": at(90),
        "started_at": NOW,
        "claimed_by": None,
        "claim_until": None,
    }
