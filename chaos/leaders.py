"""Who leads a lane, and who led it when: read straight from the leadership tables of its PostgreSQL (R19).

A claim of the dispatchers, like their rows: they write these tables. Read direct, past the proxy that faults cut.
All functions block for some seconds at most (call them in a thread); psycopg.Error where the database is away, or
where a lane's dispatcher keeps no such tables.
"""

from dataclasses import dataclass
from datetime import datetime

import psycopg

CONNECT_S = 3
STATEMENT_MS = 3000


@dataclass(frozen=True, slots=True)
class Leader:
    """Who holds the leadership: the replica's name, its term, and whether its lease still runs."""

    replica: str
    term: int
    leads: bool


@dataclass(frozen=True, slots=True)
class Term:
    """One term, on the database's clock. It is over at `expires_at`; a leader that resigns sets it to that moment."""

    term: int
    holder: str
    began_at: datetime
    expires_at: datetime
    resigned: bool


def connect(url: str) -> psycopg.Connection:
    """A connection for a few statements, with bounds on all of them."""
    options = f"-c statement_timeout={STATEMENT_MS} -c timezone=UTC"
    return psycopg.connect(url, connect_timeout=CONNECT_S, options=options, autocommit=True)


def leader(url: str) -> Leader | None:
    """The holder on record, whose lease may have run out; None before the first."""
    with connect(url) as connection:
        row = connection.execute(
            "SELECT holder, term, expires_at > clock_timestamp() FROM leadership WHERE name = 'dispatcher'"
        ).fetchone()
    return None if row is None else Leader(row[0].partition("/")[0], row[1], row[2])


def terms(url: str) -> list[Term]:
    """Every term there was, in order."""
    with connect(url) as connection:
        rows = connection.execute(
            "SELECT term, holder, began_at, expires_at, resigned FROM leadership_terms ORDER BY term"
        ).fetchall()
    return [Term(*row) for row in rows]


def claimed_by(url: str, replica: str) -> int:
    """How many rows this replica has claimed and not settled."""
    with connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM task_instances WHERE claimed_by = %s", (replica,)).fetchone()
    return 0 if row is None else int(row[0])
