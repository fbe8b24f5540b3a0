"""The tables, and the states of a task instance. PostgreSQL is the only truth (R8, R19).

Nothing here acts; statements live in `dispatcher.store`. What a state means, who moves it on and what
strands it is said once, on `State`; the same is repeated as CHECK constraints so that a wrong writer fails
loudly instead of leaving a row that nobody moves.
"""

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB


class State(StrEnum):
    """Where a task instance stands: who moves it on, and what strands it.

    | state | moved on by | stranded by |
    |---|---|---|
    | scheduled | a claim and its settlement; RUNNING, if the answer was lost | no leader; a dead claim (R20) |
    | queued | RUNNING (R11); the settlement of its create | a pod that never reports; a dead claim (R20) |
    | running | the agent's end report (R16) | a lost agent: re-placed at `lease_until` (R15, R20) |
    | up_for_retry | the planner, after the delay (R21) | no leader |
    | up_for_reschedule | the planner, when due again (R21) | no leader |
    | success, failed | nobody; a clear opens a new try (R21) | – |
    """

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    UP_FOR_RETRY = "up_for_retry"
    UP_FOR_RESCHEDULE = "up_for_reschedule"
    SUCCESS = "success"
    FAILED = "failed"


class RunState(StrEnum):
    """A run is running until all its rows have ended; then success, or failed if any row failed (R21)."""

    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"


DISPATCHABLE = (State.SCHEDULED, State.QUEUED)
"""The only states a settlement of a create, or a first RUNNING, may meet (R11, R13)."""

LIVE = (State.SCHEDULED, State.QUEUED, State.RUNNING, State.UP_FOR_RETRY, State.UP_FOR_RESCHEDULE)
"""A run with a row in one of these is not an orphan (R21)."""

ENDED = (State.SUCCESS, State.FAILED)


def _one_of(column: str, states: type[StrEnum] | tuple[StrEnum, ...]) -> str:
    return f"{column} IN ({', '.join(repr(str(s)) for s in states)})"


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_timestamp = DateTime(timezone=True)

runs = Table(
    "runs",
    metadata,
    Column("id", BigInteger, Identity(always=False), primary_key=True),
    Column("key", Text, nullable=False, unique=True, comment="the client's idempotency key"),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_at", _timestamp, nullable=False),
    Column("ended_at", _timestamp),
    Column("labels", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("body_digest", Text, nullable=False, comment="tells a repeat of a key from another body"),
    CheckConstraint(_one_of("state", RunState), name="state"),
    CheckConstraint("(state = 'running') = (ended_at IS NULL)", name="ended_at"),
)

task_instances = Table(
    "task_instances",
    metadata,
    Column("id", BigInteger, Identity(always=False), primary_key=True),
    Column("run_id", BigInteger, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("task_key", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("due_at", _timestamp, nullable=False),
    Column("next_offer_at", _timestamp, nullable=False, comment="not offered before"),
    Column(
        "offer_rank",
        SmallInteger,
        nullable=False,
        server_default=text("0"),
        comment="0 first offers and rows near their window's end, 1 held, 2 refused by a quota (R18)",
    ),
    Column("try_number", Integer, nullable=False, server_default=text("1")),
    Column("max_tries", Integer, nullable=False),
    Column("retries", Integer, nullable=False, server_default=text("0")),
    Column("retry_delay", Double, nullable=False, server_default=text("0"), comment="seconds"),
    Column("attempt_epoch", BigInteger, nullable=False, server_default=text("0"), comment="the fence (R10)"),
    Column("dispatch_attempts", Integer, nullable=False, server_default=text("0")),
    Column("dispatch_unavailable_since", _timestamp, comment="the outage's start for this row (R8)"),
    Column("scheduled_at", _timestamp, nullable=False),
    Column("queued_at", _timestamp),
    Column("started_at", _timestamp),
    Column("ended_at", _timestamp),
    Column("first_reschedule_at", _timestamp),
    Column("claimed_by", Text),
    Column("claim_until", _timestamp),
    Column("pod_name", Text),
    Column("pod_uid", Text),
    Column("agent_nonce", Text),
    Column("lease_until", _timestamp),
    Column("infra_replaces", Integer, nullable=False, server_default=text("0")),
    Column("reason", Text, comment="why it is where it is, for an operator"),
    Column("exit_code", Integer),
    Column("executor", Text, nullable=False, server_default=text("'kubernetes'")),
    Column("namespace", Text, nullable=False),
    Column("spec", JSONB, nullable=False),
    UniqueConstraint("run_id", "task_key"),
    CheckConstraint(_one_of("state", State), name="state"),
    CheckConstraint("try_number >= 1 AND max_tries >= try_number", name="tries"),
    CheckConstraint("attempt_epoch >= 0 AND dispatch_attempts >= 0 AND infra_replaces >= 0", name="counters"),
    CheckConstraint("(claimed_by IS NULL) = (claim_until IS NULL)", name="claim_whole"),
    CheckConstraint("claimed_by IS NULL OR state IN ('scheduled', 'queued')", name="claim_state"),
    CheckConstraint(
        "state <> 'running' OR (pod_uid IS NOT NULL AND agent_nonce IS NOT NULL AND lease_until IS NOT NULL)",
        name="running_is_owned",
    ),
    CheckConstraint("(state IN ('success', 'failed')) = (ended_at IS NOT NULL)", name="ended_at"),
    # The claim reads one short range of this for each rank, however many rows wait (R18).
    Index(
        "ix_task_instances_claimable",
        "offer_rank",
        "next_offer_at",
        postgresql_where=text("state = 'scheduled' AND claimed_by IS NULL"),
    ),
    Index(
        "ix_task_instances_claims",
        "claim_until",
        postgresql_where=text("claimed_by IS NOT NULL"),
    ),
    Index("ix_task_instances_leases", "lease_until", postgresql_where=text("state = 'running'")),
    Index(
        "ix_task_instances_placed",
        "queued_at",
        postgresql_where=text("state = 'queued' AND claimed_by IS NULL"),
    ),
    Index(
        "ix_task_instances_waiting",
        "next_offer_at",
        postgresql_where=text("state IN ('up_for_retry', 'up_for_reschedule')"),
    ),
    Index("ix_task_instances_ended", "ended_at", postgresql_where=text("state = 'failed'")),
)

leadership = Table(
    "leadership",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("expires_at", _timestamp, nullable=False),
)

leadership_terms = Table(
    "leadership_terms",
    metadata,
    Column("term", BigInteger, primary_key=True, autoincrement=False),
    Column("holder", Text, nullable=False),
    Column("began_at", _timestamp, nullable=False),
    Column("renewed_at", _timestamp, nullable=False),
    Column("expires_at", _timestamp, nullable=False),
    Column("resigned", Boolean, nullable=False, server_default=text("false")),
)

control = Table(
    "control",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False, server_default=text("1")),
    Column("paused_at", _timestamp, comment="dispatching is paused by an operator since (R8)"),
    CheckConstraint("id = 1", name="single_row"),
)
