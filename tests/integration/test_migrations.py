"""Migrations 047 and 048 on a real PostgreSQL (R24)."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import psycopg
import pytest
from alembic import command
from alembic.util.exc import CommandError
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from dispatcher import migrate
from dispatcher.schema import metadata

WAIT_S = 30

CATALOG = """
SELECT 'column', c.relname || '.' || a.attname,
       format_type(a.atttypid, a.atttypmod) || ' null=' || (NOT a.attnotnull) || ' default='
         || coalesce(pg_get_expr(d.adbin, d.adrelid), '-') || ' identity=' || a.attidentity::text
         || ' comment=' || coalesce(col_description(c.oid, a.attnum), '-')
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND c.relname <> 'alembic_version'
UNION ALL
SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint
 WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version'
UNION ALL
SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'
ORDER BY 1, 2
"""


def dsn(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def catalog(url: str) -> list[tuple[str, str, str]]:
    with psycopg.connect(dsn(url)) as connection:
        return connection.execute(CATALOG).fetchall()


def columns(url: str) -> set[str]:
    with psycopg.connect(dsn(url)) as connection:
        found = connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'task_instances'"
        )
        return {name for (name,) in found}


def insert_row(url: str) -> int:
    """A scheduled row, written with the columns that the release before 048 knows."""
    with psycopg.connect(dsn(url)) as connection:
        cursor = connection.execute(
            "WITH r AS (INSERT INTO runs (key, name, state, created_at, body_digest)"
            "  VALUES (gen_random_uuid()::text, 'n', 'running', now(), '') RETURNING id)"
            " INSERT INTO task_instances (run_id, task_key, state, due_at, next_offer_at, max_tries, scheduled_at,"
            "  namespace, spec) SELECT id, 't', 'scheduled', now(), now(), 1, now(), 'ns', '{}' FROM r RETURNING id"
        )
        found = cursor.fetchone()
        assert found
        return int(found[0])


def test_schema_and_migrations_agree_to_the_last_check_and_partial_index(database_url, empty_database_url):
    """`alembic check` sees neither CHECK constraints nor the WHERE of an index; the catalog shows both."""
    engine = create_engine(empty_database_url)
    metadata.create_all(engine)
    engine.dispose()
    assert catalog(database_url) == catalog(empty_database_url)


def test_alembic_check_finds_nothing_to_generate(database_url):
    command.check(migrate.configuration(database_url))


def test_alembic_check_finds_a_difference(database_url):
    with psycopg.connect(dsn(database_url)) as connection:
        connection.execute("ALTER TABLE task_instances DROP COLUMN dispatch_unavailable_since")
    with pytest.raises(CommandError, match="dispatch_unavailable_since"):
        command.check(migrate.configuration(database_url))


def test_R24_048_touches_only_the_catalog(empty_database_url):
    """Nullable, no default: the table is not rewritten, so its file stays the same one."""
    migrate.upgrade(empty_database_url, "047")
    insert_row(empty_database_url)
    with psycopg.connect(dsn(empty_database_url)) as connection:
        file = connection.execute("SELECT pg_relation_filenode('task_instances')").fetchone()
        connection.commit()
        migrate.upgrade(empty_database_url)
        assert connection.execute("SELECT pg_relation_filenode('task_instances')").fetchone() == file
        assert connection.execute("SELECT dispatch_unavailable_since FROM task_instances").fetchall() == [(None,)]
        assert connection.execute(
            "SELECT is_nullable, column_default FROM information_schema.columns"
            " WHERE column_name = 'dispatch_unavailable_since'"
        ).fetchall() == [("YES", None)]


def test_R24_the_release_before_keeps_working_on_the_new_schema(database_url):
    assert insert_row(database_url) > 0


def test_R24_down_drops_the_column_and_a_row_in_an_outage_falls_back_onto_its_attempts(database_url):
    row = insert_row(database_url)
    with psycopg.connect(dsn(database_url)) as connection:
        connection.execute("UPDATE task_instances SET dispatch_unavailable_since = now(), dispatch_attempts = 2")
    migrate.downgrade(database_url, "047")
    assert "dispatch_unavailable_since" not in columns(database_url)
    with psycopg.connect(dsn(database_url)) as connection:
        found = connection.execute("SELECT id, state, dispatch_attempts FROM task_instances").fetchall()
    assert found == [(row, "scheduled", 2)]
    migrate.upgrade(database_url)
    assert "dispatch_unavailable_since" in columns(database_url)


def test_down_to_base_leaves_nothing(database_url):
    migrate.downgrade(database_url, "base")
    assert catalog(database_url) == []


class Holder:
    """A transaction of the running release that holds its lock until it is told to let go."""

    def __init__(self, url: str, statement: str) -> None:
        self.connection = psycopg.connect(dsn(url))
        self.connection.execute(statement)

    def __enter__(self) -> "Holder":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    for _ in range(WAIT_S * 100):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"waited {WAIT_S} s for {what}")


def waiting(url: str, pattern: str) -> int:
    with psycopg.connect(dsn(url)) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND query LIKE %s",
            (pattern,),
        ).fetchone()
        assert found
        return int(found[0])


def test_R24_048_waits_for_its_lock_in_short_turns_and_lets_others_through(empty_database_url):
    migrate.upgrade(empty_database_url, "047")
    insert_row(empty_database_url)
    upgrade = threading.Thread(target=migrate.upgrade, args=(empty_database_url,), daemon=True)
    with Holder(empty_database_url, "SELECT * FROM task_instances"):
        upgrade.start()
        wait_for("048 to wait for its lock", lambda: waiting(empty_database_url, "ALTER TABLE%") == 1)
        # A statement that queues behind the ALTER gets through as soon as the turn is over.
        with psycopg.connect(dsn(empty_database_url)) as other:
            other.execute("SET statement_timeout = '5s'")
            other.execute("UPDATE task_instances SET reason = 'went through'")
    upgrade.join(WAIT_S)
    assert not upgrade.is_alive(), "048 did not end after the lock was free"
    assert "dispatch_unavailable_since" in columns(empty_database_url)


def test_R24_upgrades_at_once_are_serialised(empty_database_url):
    """Three processes, as three replicas start together: all wait at one lock, then each finds its part done."""
    argv = [sys.executable, "-m", "alembic", "-c", str(migrate.MIGRATIONS / "alembic.ini"), "upgrade", "head"]
    environment = {**os.environ, "RIDEOUT_DATABASE_URL": empty_database_url}
    with Holder(empty_database_url, "SELECT pg_advisory_lock(8244230979702846512)"):
        upgrades = [
            subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, cwd="/", text=True) for _ in range(3)
        ]
        wait_for("three waiting upgrades", lambda: waiting(empty_database_url, "%pg_advisory_lock%") == 3)
        assert columns(empty_database_url) == set()
    for upgrade in upgrades:
        _, errors = upgrade.communicate(timeout=WAIT_S)
        assert upgrade.returncode == 0, errors
    assert "dispatch_unavailable_since" in columns(empty_database_url)


def test_a_database_that_is_down_is_one_clear_line():
    with pytest.raises(migrate.MigrationFailed) as raised:
        migrate.upgrade("postgresql+psycopg://someone:secret@127.0.0.1:1/gone")
    message = str(raised.value)
    assert "\n" not in message
    assert "secret" not in message
    assert "127.0.0.1:1/gone" in message
    assert "RIDEOUT_DATABASE_URL" in message


def test_R10_a_row_cannot_be_running_without_an_owner(database_url):
    insert_row(database_url)
    engine = create_engine(database_url)
    with engine.connect() as connection, pytest.raises(Exception, match="running_is_owned"):
        connection.execute(text("UPDATE task_instances SET state = 'running'"))
    engine.dispose()
