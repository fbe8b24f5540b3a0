"""Claim what is due, and give back what a dead dispatcher held."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, exists, not_, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from dispatcher.rules import Rank, Row
from dispatcher.schema import DISPATCHABLE, State, control, runs, task_instances
from dispatcher.store.common import NEXT_EPOCH, UNCLAIMED, t


@dataclass(frozen=True, slots=True)
class Claim:
    """One row, claimed under one epoch until `until`; whoever settles it must name both id and epoch."""

    id: int
    epoch: int
    try_number: int
    run_name: str
    task_key: str
    namespace: str
    spec: dict[str, Any]
    executor: str
    row: Row
    until: datetime


async def claim_due(
    connection: AsyncConnection,
    *,
    now: datetime,
    limit: int,
    replica: str,
    until: datetime,
    mark_queued: bool,
) -> list[Claim]:
    """Claim up to `limit` scheduled rows that are due, under a new epoch each (R10, R18).

    Nothing is claimed while an operator has paused dispatching. `mark_queued` is the buffered path's write
    that marks the row queued before its create; it keeps the outage start (R8).
    """
    claimed = await connection.execute(claim_statement(now, limit, replica, until, mark_queued=mark_queued))
    # RETURNING knows no order, and the buffer is a queue: first come the rows that go first (R18).
    rows = sorted(claimed.tuples(), key=lambda row: row[-2:])
    return [
        Claim(id_, epoch, try_number, run_name, key, namespace, spec, executor, Row(attempts, since, Rank(rank)), until)
        for id_, epoch, try_number, run_name, key, namespace, spec, executor, attempts, since, rank, _ in rows
    ]


def claim_statement(
    now: datetime, limit: int, replica: str, until: datetime, *, mark_queued: bool
) -> ReturningUpdate[Any]:
    """The claim, as one statement: choose, lock, bump the epoch, return.

    Each rank is one short range of the partial index, so its cost does not grow with the rows that wait (a
    test keeps the plan). SKIP LOCKED: two claimers never wait for each other.
    """
    claimable = and_(
        t.state == State.SCHEDULED,
        t.claimed_by.is_(None),
        t.next_offer_at <= now,
        not_(exists().where(control.c.paused_at.is_not(None))),
    )
    by_rank = [
        select(t.id, t.offer_rank, t.next_offer_at)
        .where(claimable, t.offer_rank == int(rank))
        .order_by(t.next_offer_at)
        .limit(limit)
        .subquery(f"rank_{rank.name.lower()}")
        for rank in Rank
    ]
    due = union_all(*(select(one) for one in by_rank)).subquery("due")
    first = select(due.c.id).order_by(due.c.offer_rank, due.c.next_offer_at).limit(limit).cte("first")
    chosen = select(t.id).where(t.id.in_(select(first.c.id)), claimable).with_for_update(skip_locked=True).cte("chosen")
    queued = {"state": State.QUEUED, "queued_at": now} if mark_queued else {}
    return (
        update(task_instances)
        .where(t.id == chosen.c.id, t.run_id == runs.c.id)
        .values(**NEXT_EPOCH, claimed_by=replica, claim_until=until, **queued)
        .returning(
            t.id,
            t.attempt_epoch,
            t.try_number,
            runs.c.name,
            t.task_key,
            t.namespace,
            t.spec,
            t.executor,
            t.dispatch_attempts,
            t.dispatch_unavailable_since,
            t.offer_rank,
            t.next_offer_at,
        )
    )


async def re_offer_dead_claims(connection: AsyncConnection, *, now: datetime) -> list[int]:
    """A claim whose `claim_until` has passed is dead: its row is offered again at once (R20).

    Its create may have been sent, so the epoch grows; the outage start and the attempts are kept.
    """
    dead = await connection.execute(
        update(task_instances)
        .where(t.state.in_(DISPATCHABLE), t.claim_until <= now)
        .values(
            **NEXT_EPOCH,
            **UNCLAIMED,
            state=State.SCHEDULED,
            next_offer_at=now,
            reason="re-offered: its claim died with a dispatcher",
        )
        .returning(t.id)
    )
    return [row.id for row in dead]
