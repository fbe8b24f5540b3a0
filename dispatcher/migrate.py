"""`dispatcher migrate`: bring a database to the newest schema, or tell in one line why not (R24)."""

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

MIGRATIONS = Path(__file__).parent.parent / "migrations"
HEAD = "head"


class MigrationFailed(Exception):
    """The message is one line for a person: which database, what is wrong, what to do."""


def configuration(database_url: str) -> Config:
    """Alembic's configuration for a database, wherever the project lies."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", database_url.replace("%", "%%"))
    return config


def upgrade(database_url: str, revision: str = HEAD) -> None:
    """Upgrade. Two at once are fine: the second waits (migrations/env.py).

    Raises MigrationFailed when the database cannot be reached or a lock was not to be had.
    """
    _say_clearly(database_url, lambda: command.upgrade(configuration(database_url), revision))


def downgrade(database_url: str, revision: str) -> None:
    """Downgrade to a revision, `047` or `base`."""
    _say_clearly(database_url, lambda: command.downgrade(configuration(database_url), revision))


def place(database_url: str) -> str:
    """The URL as it may be shown: without its password."""
    return make_url(database_url).render_as_string(hide_password=True)


def _say_clearly(database_url: str, work: Callable[[], None]) -> None:
    try:
        work()
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) == "55P03":
            raise MigrationFailed(
                f"{place(database_url)}: a lock could not be had: another upgrade or a long transaction holds it; "
                "end that and run migrate again, it goes on where it stopped"
            ) from error
        cause = " ".join(str(error.orig).split())
        raise MigrationFailed(
            f"cannot migrate {place(database_url)}: {cause}; is PostgreSQL up, and RIDEOUT_DATABASE_URL right?"
        ) from error
