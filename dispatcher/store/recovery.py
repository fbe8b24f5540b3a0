"""Take back rows whose pod or agent is gone, as an infra fault: the same try, a new dispatch episode (R20)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Text, and_, case, exists, func, literal, not_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.elements import ColumnElement

from dispatcher.rules import Rank
from dispatcher.schema import LIVE, RunState, State, runs, task_instances
from dispatcher.store.common import NEW_EPISODE, NEXT_EPOCH, TIMESTAMP, UNCLAIMED, batch, count, ids, lock_runs, t


@dataclass(frozen=True, slots=True)
class RePlacePolicy:
    """Re-places back off from `first_s`, doubling to `max_s`; the `bound`-th in a row without RUNNING fails (R20)."""

    first_s: float = 5
    max_s: float = 300
    bound: int = 6


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A row that was placed and has not reported since."""

    id: int
    epoch: int
    namespace: str
    pod_name: str
    pod_uid: str
    executor: str


@dataclass(frozen=True, slots=True)
class Gone:
    """What a complete pod list proved of a placed row (R20, R22)."""

    id: int
    epoch: int
    pod_uid: str
    reason: str
    """The pod's own reason, for the operator: `Evicted`, `ImagePullBackOff`, `the pod is gone` …"""


@dataclass(frozen=True, slots=True)
class Owner:
    """The attempt that a row is at, and the pod that has it, if one has reported or was placed."""

    epoch: int
    pod_uid: str | None


async def owners(connection: AsyncConnection, row_ids: Iterable[int]) -> dict[int, Owner]:
    """Who owns these rows now; rows that do not exist are missing."""
    wanted = batch(row_id=(BigInteger, sorted(row_ids)))
    found = await connection.execute(select(t.id, t.attempt_epoch, t.pod_uid).where(t.id == wanted.c.row_id))
    return {row_id: Owner(epoch, pod_uid) for row_id, epoch, pod_uid in found.tuples()}


async def re_place_expired_leases(
    connection: AsyncConnection, *, now: datetime, policy: RePlacePolicy, limit: int = 1000
) -> list[int]:
    """Running rows whose whole lease has passed on the database's clock: their agent is dead or fenced (R15, R20).

    One UPDATE whose WHERE repeats state and `lease_until <= now`: a heartbeat that comes first wins.
    """
    expired = (
        select(t.id)
        .where(t.state == State.RUNNING, t.lease_until <= now)
        .order_by(t.lease_until)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("expired")
    )
    return sorted(
        await ids(
            connection,
            update(task_instances)
            .where(t.id == expired.c.id, t.state == State.RUNNING, t.lease_until <= now)
            .values(**_re_placed(now, policy, literal("its agent's lease ran out")))
            .returning(t.id),
        )
    )


async def placed_without_report(
    connection: AsyncConnection, *, placed_before: datetime, limit: int = 10_000
) -> list[PlacedRow]:
    """Rows placed before `placed_before` whose agent has not reported. Nothing is proven of them yet."""
    found = await connection.execute(
        select(t.id, t.attempt_epoch, t.namespace, t.pod_name, t.pod_uid, t.executor)
        .where(t.state == State.QUEUED, t.claimed_by.is_(None), t.queued_at <= placed_before)
        .order_by(t.queued_at)
        .limit(limit)
    )
    return [PlacedRow(*row) for row in found.tuples()]


async def re_place_if_still_placed(
    connection: AsyncConnection, gone: Sequence[Gone], *, now: datetime, policy: RePlacePolicy
) -> set[int]:
    """Placed rows whose pod a complete list proved gone, each only while it is still placed as that very pod."""
    v = batch(
        row_id=(BigInteger, [one.id for one in gone]),
        epoch=(BigInteger, [one.epoch for one in gone]),
        pod_uid=(Text, [one.pod_uid for one in gone]),
        reason=(Text, [one.reason for one in gone]),
    )
    still_placed = and_(
        t.id == v.c.row_id,
        t.attempt_epoch == v.c.epoch,
        t.pod_uid == v.c.pod_uid,
        t.state == State.QUEUED,
        t.claimed_by.is_(None),
    )
    return await ids(
        connection,
        update(task_instances).where(still_placed).values(**_re_placed(now, policy, v.c.reason)).returning(t.id),
    )


async def fail_orphan_runs(connection: AsyncConnection, *, now: datetime, orphan_s: float) -> int:
    """Runs that have had no live row for `orphan_s` (R21). A scheduled row is live: an outage reaps no run."""
    rows = task_instances.alias("rows")
    before = now - timedelta(seconds=orphan_s)
    mine = rows.c.run_id == runs.c.id
    orphaned = and_(
        runs.c.state == RunState.RUNNING,
        runs.c.created_at <= before,
        not_(exists().where(mine, rows.c.state.in_(LIVE))),
        not_(exists().where(mine, rows.c.ended_at > before)),
    )
    locked = await lock_runs(connection, orphaned)
    if not locked:
        return 0
    return await count(
        connection,
        update(runs).where(runs.c.id.in_(locked), orphaned).values(state=RunState.FAILED, ended_at=now),
    )


def _re_placed(now: datetime, policy: RePlacePolicy, why: ColumnElement[str]) -> Mapping[str, Any]:
    replaces = t.infra_replaces + 1
    spent = replaces >= policy.bound
    backoff_s = func.least(policy.max_s, policy.first_s * func.power(2, t.infra_replaces))
    at = literal(now, TIMESTAMP)
    return {
        **NEXT_EPOCH,
        **UNCLAIMED,
        **NEW_EPISODE,
        "state": case((spent, State.FAILED), else_=State.SCHEDULED),
        "ended_at": case((spent, at), else_=None),
        "max_tries": case((spent, t.try_number), else_=t.max_tries),
        "scheduled_at": at,
        "next_offer_at": at + func.make_interval(0, 0, 0, 0, 0, 0, backoff_s),
        "offer_rank": int(Rank.FIRST),
        "infra_replaces": replaces,
        "reason": case((spent, literal("infra_failed: ") + why), else_=literal("re-placed: ") + why),
    }
