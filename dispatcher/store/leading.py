"""Leader election in PostgreSQL, never in the Kubernetes API, which is what is down (R19)."""

from datetime import datetime, timedelta

from sqlalchemy import and_, case, or_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from dispatcher.schema import leadership, leadership_terms

_LEADER = "dispatcher"


async def lead_if_free(connection: AsyncConnection, *, now: datetime, holder: str, lease_s: float) -> int | None:
    """Renew the leadership if `holder` has it, or take it if its lease has passed (R19).

    :returns: the term, which grows with each change of leader; None while somebody else leads.
    """
    expires_at = now + timedelta(seconds=lease_s)
    offered = insert(leadership).values(name=_LEADER, holder=holder, term=1, expires_at=expires_at)
    renews = and_(leadership.c.holder == holder, leadership.c.expires_at > now)
    taken = await connection.execute(
        offered.on_conflict_do_update(
            index_elements=[leadership.c.name],
            set_={
                "holder": offered.excluded.holder,
                "expires_at": offered.excluded.expires_at,
                "term": leadership.c.term + case((renews, 0), else_=1),
            },
            where=or_(renews, leadership.c.expires_at <= now),
        ).returning(leadership.c.term)
    )
    term: int | None = taken.scalar_one_or_none()
    if term is None:
        return None
    record = insert(leadership_terms).values(
        term=term, holder=holder, began_at=now, renewed_at=now, expires_at=expires_at
    )
    await connection.execute(
        record.on_conflict_do_update(
            index_elements=[leadership_terms.c.term],
            set_={"renewed_at": now, "expires_at": expires_at},
            where=leadership_terms.c.holder == holder,
        )
    )
    return term


async def resign_if_leading(connection: AsyncConnection, *, now: datetime, holder: str, term: int) -> bool:
    """Give the leadership up at once, so that another replica need not wait for the lease (R25)."""
    resigned = await connection.execute(
        update(leadership)
        .where(leadership.c.holder == holder, leadership.c.term == term, leadership.c.expires_at > now)
        .values(expires_at=now)
    )
    if resigned.rowcount:
        await connection.execute(
            update(leadership_terms)
            .where(leadership_terms.c.term == term, leadership_terms.c.holder == holder)
            .values(expires_at=now, renewed_at=now, resigned=True)
        )
    return bool(resigned.rowcount)
