"""Take in a run once, whatever the number of times it is submitted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher.schema import RunState, State, runs, task_instances


@dataclass(frozen=True, slots=True)
class Submitted:
    run_id: int
    created: bool
    same_body: bool


async def submit_once(
    connection: AsyncConnection,
    *,
    now: datetime,
    key: str,
    name: str,
    labels: Mapping[str, str],
    digest: str,
    tasks: Sequence[Mapping[str, Any]],
) -> Submitted:
    """Insert the run and its rows, unless its key is known (R21). In the caller's transaction: all or nothing.

    Two submissions of one key at once: the second waits for the first's commit at the unique key, then sees it.

    :param tasks: task_key, due_at, retries, retry_delay, namespace, spec of each row.
    """
    added = await connection.execute(
        upsert(runs)
        .values(key=key, name=name, labels=dict(labels), body_digest=digest, state=RunState.RUNNING, created_at=now)
        .on_conflict_do_nothing(index_elements=[runs.c.key])
        .returning(runs.c.id)
    )
    run_id: int | None = added.scalar_one_or_none()
    if run_id is None:
        known = (await connection.execute(select(runs.c.id, runs.c.body_digest).where(runs.c.key == key))).one()
        return Submitted(known.id, created=False, same_body=known.body_digest == digest)
    await connection.execute(
        insert(task_instances),
        [
            {
                **task,
                "run_id": run_id,
                "state": State.SCHEDULED,
                "next_offer_at": task["due_at"],
                "scheduled_at": now,
                "max_tries": 1 + task["retries"],
            }
            for task in tasks
        ],
    )
    return Submitted(run_id, created=True, same_body=True)
