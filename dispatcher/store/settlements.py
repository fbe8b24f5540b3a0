"""Write decisions down, each only if its row is still what the decision was about (R13)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from sqlalchemy import BigInteger, Integer, SmallInteger, Text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher.rules import Decision, Fail, Place, ReOffer
from dispatcher.schema import State, task_instances
from dispatcher.store.common import NEXT_EPOCH, TIMESTAMP, UNCLAIMED, batch, ids, is_current, t


@dataclass(frozen=True, slots=True)
class Settlement:
    """A decision for exactly one (row, epoch)."""

    row_id: int
    epoch: int
    decision: Decision


async def settle_if_current(
    connection: AsyncConnection, settlements: Iterable[Settlement], *, now: datetime
) -> set[int]:
    """Write decisions down, each only if its row is still under its epoch and scheduled or queued (R13).

    :returns: the ids of the rows that were still current; a row that is missing moved on meanwhile.
    """
    placed: list[tuple[Settlement, Place]] = []
    re_offered: list[tuple[Settlement, ReOffer]] = []
    failed: list[tuple[Settlement, Fail]] = []
    for one in settlements:
        match one.decision:
            case Place():
                placed.append((one, one.decision))
            case ReOffer():
                re_offered.append((one, one.decision))
            case Fail():
                failed.append((one, one.decision))
            case _:  # pragma: no cover
                assert_never(one.decision)
    current: set[int] = set()
    if placed:
        current |= await _place_if_current(connection, placed, now)
    if re_offered:
        current |= await _re_offer_if_current(connection, re_offered)
    if failed:
        current |= await _fail_dispatch_if_current(connection, failed, now)
    return current


async def _place_if_current(
    connection: AsyncConnection, rows: Sequence[tuple[Settlement, Place]], now: datetime
) -> set[int]:
    """The pod was accepted: record it, and the outage is over for this row, on both paths (R8, R18)."""
    v = batch(
        row_id=(BigInteger, [one.row_id for one, _ in rows]),
        epoch=(BigInteger, [one.epoch for one, _ in rows]),
        pod_name=(Text, [place.pod_name for _, place in rows]),
        pod_uid=(Text, [place.pod_uid for _, place in rows]),
    )
    return await ids(
        connection,
        update(task_instances)
        .where(is_current(v))
        .values(
            **UNCLAIMED,
            state=State.QUEUED,
            queued_at=now,
            pod_name=v.c.pod_name,
            pod_uid=v.c.pod_uid,
            dispatch_unavailable_since=None,
            reason="placed: waits for its agent",
        )
        .returning(t.id),
    )


async def _re_offer_if_current(connection: AsyncConnection, rows: Sequence[tuple[Settlement, ReOffer]]) -> set[int]:
    """Back to scheduled under a new epoch, so that a pod which a lost create left behind is refused (R10)."""
    v = batch(
        row_id=(BigInteger, [one.row_id for one, _ in rows]),
        epoch=(BigInteger, [one.epoch for one, _ in rows]),
        next_offer_at=(TIMESTAMP, [offer.next_offer_at for _, offer in rows]),
        attempts=(Integer, [offer.dispatch_attempts for _, offer in rows]),
        since=(TIMESTAMP, [offer.dispatch_unavailable_since for _, offer in rows]),
        rank=(SmallInteger, [int(offer.rank) for _, offer in rows]),
        reason=(Text, [offer.reason for _, offer in rows]),
    )
    return await ids(
        connection,
        update(task_instances)
        .where(is_current(v))
        .values(
            **NEXT_EPOCH,
            **UNCLAIMED,
            state=State.SCHEDULED,
            next_offer_at=v.c.next_offer_at,
            dispatch_attempts=v.c.attempts,
            dispatch_unavailable_since=v.c.since,
            offer_rank=v.c.rank,
            reason=v.c.reason,
        )
        .returning(t.id),
    )


async def _fail_dispatch_if_current(
    connection: AsyncConnection, rows: Sequence[tuple[Settlement, Fail]], now: datetime
) -> set[int]:
    """Terminal (R7): `max_tries` falls to the current try, so the planner does not place the row again.

    The epoch grows here too: an earlier ambiguous create may have left a pod (R10).
    """
    v = batch(
        row_id=(BigInteger, [one.row_id for one, _ in rows]),
        epoch=(BigInteger, [one.epoch for one, _ in rows]),
        attempts=(Integer, [fail.dispatch_attempts for _, fail in rows]),
        since=(TIMESTAMP, [fail.dispatch_unavailable_since for _, fail in rows]),
        reason=(Text, [fail.reason for _, fail in rows]),
    )
    return await ids(
        connection,
        update(task_instances)
        .where(is_current(v))
        .values(
            **NEXT_EPOCH,
            **UNCLAIMED,
            state=State.FAILED,
            ended_at=now,
            max_tries=t.try_number,
            dispatch_attempts=v.c.attempts,
            dispatch_unavailable_since=v.c.since,
            reason=v.c.reason,
        )
        .returning(t.id),
    )
