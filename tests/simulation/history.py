"""The rows' own history, kept by a trigger: every committed move of every row, in order, whoever made it."""

from dataclasses import dataclass
from datetime import datetime

import psycopg

from tests.simulation.ground import ORIGIN

_COLUMNS = (
    "id",
    "run_id",
    "state",
    "try_number",
    "max_tries",
    "retries",
    "attempt_epoch",
    "dispatch_attempts",
    "infra_replaces",
    "claimed_by",
    "pod_name",
    "pod_uid",
    "agent_nonce",
    "reason",
    "retry_delay",
    "dispatch_unavailable_since",
    "next_offer_at",
    "queued_at",
    "claim_until",
    "lease_until",
    "ended_at",
)
_TIMES_FROM = _COLUMNS.index("dispatch_unavailable_since")
_LIST = ", ".join(_COLUMNS)

INSTALL = f"""
CREATE UNLOGGED TABLE sim_history AS SELECT 0::bigint AS seq, 'row'::text AS what, {_LIST} FROM task_instances LIMIT 0;
ALTER TABLE sim_history ADD PRIMARY KEY (seq);
CREATE SEQUENCE sim_seq;
CREATE FUNCTION sim_note_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'DELETE' THEN
    INSERT INTO sim_history (seq, what, id) VALUES (nextval('sim_seq'), 'gone', OLD.id);
  ELSE
    INSERT INTO sim_history (seq, what, {_LIST})
      VALUES (nextval('sim_seq'), 'row', {", ".join("NEW." + one for one in _COLUMNS)});
  END IF;
  RETURN NULL; END $$;
CREATE FUNCTION sim_note_run() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO sim_history (seq, what, id, state) VALUES (nextval('sim_seq'), 'run', NEW.id, NEW.state);
  RETURN NULL; END $$;
CREATE TRIGGER sim_rows AFTER INSERT OR UPDATE OR DELETE ON task_instances
  FOR EACH ROW EXECUTE FUNCTION sim_note_row();
CREATE TRIGGER sim_runs AFTER INSERT OR UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION sim_note_run();
"""

CLEAR = """
DELETE FROM runs; DELETE FROM leadership; DELETE FROM leadership_terms; DELETE FROM control; DELETE FROM sim_history;
SELECT setval('task_instances_id_seq', 1, false), setval('runs_id_seq', 1, false), setval('sim_seq', 1, false);
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One row after one move. Times are virtual seconds of the schedule."""

    id: int
    run_id: int
    state: str
    try_number: int
    max_tries: int
    retries: int
    epoch: int
    attempts: int
    infra_replaces: int
    claimed_by: str | None
    pod_name: str | None
    pod_uid: str | None
    nonce: str | None
    reason: str | None
    retry_delay: float
    since: float | None
    next_offer_at: float
    queued_at: float | None
    claim_until: float | None
    lease_until: float | None
    ended_at: float | None

    @property
    def claimed(self) -> bool:
        return self.claimed_by is not None

    @property
    def dispatchable(self) -> bool:
        return self.state in ("scheduled", "queued")

    @property
    def ended(self) -> bool:
        return self.state in ("success", "failed")


@dataclass(frozen=True, slots=True)
class Gone:
    id: int


@dataclass(frozen=True, slots=True)
class Run:
    id: int
    state: str


class History:
    """Reads what the trigger noted, once each."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._seen = 0

    def begin(self) -> None:
        """Forget the schedule before: empty tables, ids from 1."""
        self._connection.execute(CLEAR)
        self._seen = 0

    def moves(self) -> list[Row | Gone | Run]:
        rows = self._connection.execute(
            f"SELECT seq, what, {_LIST} FROM sim_history WHERE seq > %s ORDER BY seq", [self._seen]
        ).fetchall()
        if rows:
            self._seen = rows[-1][0]
        return [_move(what, values) for _, what, *values in rows]


def _move(what: str, values: list[object]) -> Row | Gone | Run:
    if what == "run":
        return Run(int(str(values[0])), str(values[2]))
    if what == "gone":
        return Gone(int(str(values[0])))
    return Row(*values[:_TIMES_FROM], *map(_seconds, values[_TIMES_FROM:]))  # type: ignore[arg-type]


def _seconds(value: object) -> float | None:
    return (value - ORIGIN).total_seconds() if isinstance(value, datetime) else None
