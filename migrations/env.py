"""Alembic's entry: one upgrade at a time, each migration in its own transaction (R24).

Two replicas that start together both run `migrate`; an advisory lock lets one work while the other waits and then
finds nothing left to do. The database is `RIDEOUT_DATABASE_URL`, or the URL that `dispatcher.migrate` sets.
"""

import os

from alembic import context
from sqlalchemy import Connection, create_engine, pool, text

from dispatcher.schema import metadata

UPGRADE_LOCK = 0x7269_6465_6F75_7430  # "rideout0": no other program takes this number
WAIT_FOR_OTHERS = "120s"


def _url() -> str:
    url = context.config.get_main_option("sqlalchemy.url") or os.environ.get("RIDEOUT_DATABASE_URL")
    if not url:
        raise SystemExit("migrations: RIDEOUT_DATABASE_URL is not set")
    return url


def _run(connection: Connection) -> None:
    # Session level: it must outlast the migrations' own transactions. lock_timeout bounds advisory locks too.
    connection.execute(text(f"SET lock_timeout = '{WAIT_FOR_OTHERS}'"))
    connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": UPGRADE_LOCK})
    connection.commit()
    try:
        context.configure(
            connection=connection,
            target_metadata=metadata,
            transaction_per_migration=True,
            compare_type=True,
            compare_server_default=True,
        )
        with context.begin_transaction():
            context.run_migrations()
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": UPGRADE_LOCK})
        connection.commit()


if context.is_offline_mode():
    context.configure(url=_url(), target_metadata=metadata, literal_binds=True, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = create_engine(_url(), poolclass=pool.NullPool, connect_args={"connect_timeout": 10})
    with engine.connect() as live:
        _run(live)
    engine.dispose()
