"""The engine: one pool a replica, with bounds on everything that can hang."""

from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dispatcher.settings import Settings

_READ_ONLY = "25006"  # SQLSTATE read_only_sql_transaction: what a demoted primary answers
_CONNECT: dict[str, Any] = {
    "connect_timeout": 5,
    "target_session_attrs": "read-write",  # after a failover, only the new primary will do
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "options": "-c statement_timeout=10000 -c idle_in_transaction_session_timeout=10000 -c timezone=UTC",
}


def create_engine(settings: Settings) -> AsyncEngine:
    """An engine whose statements fail within 10 s instead of hanging, and whose pool forgets a dead primary."""
    engine = create_async_engine(
        settings.database_url,
        hide_parameters=True,  # specs hold their users' environment: it belongs in no log
        pool_size=settings.database_pool,
        max_overflow=0,
        pool_timeout=10,
        pool_recycle=1800,
        connect_args={**_CONNECT, "application_name": f"rideout {settings.replica}"[:63]},
    )
    event.listen(engine.sync_engine, "handle_error", _forget_a_demoted_primary)
    return engine


def _forget_a_demoted_primary(context: ExceptionContext) -> None:
    """A read-only connection will not heal: count it as a disconnect, so that the whole pool is renewed."""
    if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
        context.is_disconnect = True
