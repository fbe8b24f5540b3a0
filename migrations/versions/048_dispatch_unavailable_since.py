"""The start of the outage that a row rides out (R8, R24).

Nullable and without a default, so that only the catalog is touched: no table rewrite, however many rows. The
ACCESS EXCLUSIVE lock it needs for a moment is waited for in short turns; a long wait would queue every other
statement of the running release behind it. That release ignores the column.

Downgrade: a row that rides an outage out falls back onto the attempt budget.
"""

import random
import time

from alembic import context, op
from sqlalchemy.exc import OperationalError

revision = "048"
down_revision = "047"
branch_labels = None
depends_on = None

LOCK_TIMEOUT_MS = 500  # how long other statements may queue behind a turn
TURNS = 60
PAUSE_S = 1.0  # between turns, with jitter, so that what queued can run


def _in_short_turns(statement: str) -> None:
    """Run DDL under a short lock timeout, again and again. Raises OperationalError after the last turn."""
    if context.is_offline_mode():
        op.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms'")
        op.execute(statement)
        return
    connection = op.get_bind()
    for turn in range(1, TURNS + 1):
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms'")
                connection.exec_driver_sql(statement)
            return
        except OperationalError as error:
            lock_not_available = getattr(error.orig, "sqlstate", None) == "55P03"
            if not lock_not_available or turn == TURNS:
                raise
            time.sleep(PAUSE_S * random.uniform(0.5, 1.5))


def upgrade() -> None:
    _in_short_turns("ALTER TABLE task_instances ADD COLUMN dispatch_unavailable_since timestamptz")
    op.execute("COMMENT ON COLUMN task_instances.dispatch_unavailable_since IS 'the outage''s start for this row (R8)'")


def downgrade() -> None:
    _in_short_turns("ALTER TABLE task_instances DROP COLUMN dispatch_unavailable_since")
