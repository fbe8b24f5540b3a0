"""One PostgreSQL, one virtual loop and one pool of connections for all schedules."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy.engine import make_url

from dispatcher.database import create_engine
from dispatcher.settings import Settings
from tests.integration.conftest import Databases, databases, migrated_template, server_url
from tests.simulation.history import INSTALL
from tests.simulation.lasting import Lasting
from tests.simulation.process import killed_tasks_are_no_news, task_factory
from tests.simulation.virtual_time import VirtualLoop

__all__ = ["databases", "migrated_template", "server_url"]


@pytest.fixture(scope="session")
def lasting(databases: Databases, migrated_template: str) -> Iterator[Lasting]:
    url = databases.create(migrated_template)
    dsn = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    loop = VirtualLoop()
    loop.set_task_factory(task_factory)  # type: ignore[arg-type]
    loop.set_exception_handler(killed_tasks_are_no_news)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(INSTALL)
        engine = create_engine(Settings(database_url=url, database_pool=4, replica="simulation"))
        yield Lasting(loop, engine, admin)
        loop.run_until_complete(engine.dispose())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        asyncio.set_event_loop(None)
    databases.drop(url)
