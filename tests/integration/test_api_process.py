"""A replica as a real process: how it starts, waits, refuses to start, and stops (R19, R25, R26)."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url
from typer.testing import CliRunner

from dispatcher.cli import app

DEADLINE_S = 60
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: it
contexts: [{name: it, context: {cluster: it, user: it}}]
clusters: [{name: it, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: it, user: {token: t}}]
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Replica:
    """`python -m dispatcher serve` with its log."""

    def __init__(self, folder: Path, port: int, environment: dict[str, str]) -> None:
        self.url, self.log = f"http://127.0.0.1:{port}", folder / f"replica-{port}.log"
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dispatcher", "serve"],
                env=environment,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )

    def status(self, path: str) -> int:
        """The HTTP status of a GET; 0 while nobody listens."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def events(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def wait_for(self, what: str, condition: Callable[[], Any]) -> None:
        until = time.monotonic() + DEADLINE_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"waited for {what}; exit {self.process.poll()}; {self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def stops(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)


Start = Callable[..., Replica]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    return {
        "PATH": os.environ["PATH"],
        "RIDEOUT_PROFILE": "quick",
        "RIDEOUT_KUBECONFIG": str(kubeconfig),
        "RIDEOUT_SIGNING_KEYS": "a-key",
    }


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Start]:
    started: list[Replica] = []

    def begin(database_url: str, **changes: str) -> Replica:
        port = free_port()
        settings = {"RIDEOUT_DATABASE_URL": database_url, "RIDEOUT_LISTEN": f"127.0.0.1:{port}", **changes}
        started.append(Replica(tmp_path, port, {**environment, **settings}))
        return started[-1]

    yield begin
    for replica in started:
        replica.process.kill()
        replica.process.wait()


def cli(command: str, environment: dict[str, str], **changes: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "dispatcher", command],
        env={**environment, **changes},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def leads(replica: Replica) -> bool:
    return any(event["event"] == "leadership.changed" and event["leads"] for event in replica.events())


def test_R25_R19_a_replica_stops_with_0_on_sigterm_and_another_leads_at_once(start, database_url):
    first = start(database_url, RIDEOUT_WINDOWS_S="5")
    first.wait_for("readiness", lambda: first.status("/readyz") == 200)
    first.wait_for("a leader", lambda: leads(first))
    unknown = [event["variables"] for event in first.events() if event["event"] == "settings.unknown"]
    assert unknown == [["RIDEOUT_WINDOWS_S"]], "a slip of the pen is said"
    second = start(database_url, RIDEOUT_LEADER_LEASE_S="600", RIDEOUT_LEADER_RENEW_S="0.5")
    second.wait_for("readiness", lambda: second.status("/readyz") == 200)
    assert not leads(second), "one leads"
    assert first.stops() == 0
    assert first.events()[-1]["event"] == "dispatcher.stopped"
    second.wait_for("the second to lead", lambda: leads(second))
    assert second.stops() == 0


def test_a_database_that_is_down_at_the_start_is_waited_for(start, databases, migrated_template):
    url = databases.create(migrated_template)
    name = make_url(url).database
    databases.drop(url)
    replica = start(url)
    replica.wait_for("healthz", lambda: replica.status("/healthz") == 200)
    replica.wait_for("a clear line", lambda: any(e["event"] == "database.waiting" for e in replica.events()))
    assert replica.status("/readyz") == 503
    assert name in next(e["trouble"] for e in replica.events() if e["event"] == "database.waiting")
    created = databases.create(migrated_template, name=name)
    replica.wait_for("readiness", lambda: replica.status("/readyz") == 200)
    assert replica.stops() == 0
    databases.drop(created)


def test_a_database_without_our_schema_is_named_with_its_remedy_which_helps(start, environment, empty_database_url):
    replica = start(empty_database_url)
    remedy = "run `python -m dispatcher migrate`"
    replica.wait_for("a clear line", lambda: any(remedy in str(event) for event in replica.events()))
    assert replica.status("/readyz") == 503
    ended = cli("migrate", environment, RIDEOUT_DATABASE_URL=empty_database_url)
    assert (ended.returncode, ended.stderr) == (0, "")
    replica.wait_for("readiness", lambda: replica.status("/readyz") == 200)
    assert replica.stops() == 0


DOWN = "postgresql+psycopg://u:hunter2@127.0.0.1:1/gone"
LISTEN_TO_ALL = {"RIDEOUT_LISTEN": "0.0.0.0:1"}
TROUBLE: list[tuple[str, str, dict[str, str], int, list[str]]] = [
    ("a database that is down", "migrate", {"RIDEOUT_DATABASE_URL": DOWN}, 2, ["127.0.0.1:1/gone", "PostgreSQL up"]),
    ("no database's URL", "migrate", {"RIDEOUT_DATABASE_URL": "mysql://x/y"}, 64, ["RIDEOUT_DATABASE_URL"]),
    ("a kubeconfig that is not there", "serve", {"RIDEOUT_KUBECONFIG": "/no/such"}, 2, ["KUBECONFIG", "/no/such"]),
    ("a kubeconfig that is none", "serve", {"RIDEOUT_KUBECONFIG": "/etc/passwd"}, 2, ["KUBECONFIG", "/etc/passwd"]),
    ("no signing key", "serve", {"RIDEOUT_SIGNING_KEYS": ""}, 64, ["RIDEOUT_SIGNING_KEYS"]),
    ("an address for all without a token", "serve", LISTEN_TO_ALL, 64, ["RIDEOUT_API_TOKEN", "0.0.0.0"]),
    ("no address", "serve", {"RIDEOUT_LISTEN": "here"}, 64, ["RIDEOUT_LISTEN", "host:port"]),
    ("an outcome log in no folder", "serve", {"RIDEOUT_OUTCOME_LOG": "/no/such/log"}, 2, ["RIDEOUT_OUTCOME_LOG"]),
    ("a setting out of range", "serve", {"RIDEOUT_WINDOW_S": "0"}, 64, ["RIDEOUT_WINDOW_S=0", "1 to 86400"]),
    ("a setting that is no number", "serve", {"RIDEOUT_ATTEMPTS": "six"}, 64, ["RIDEOUT_ATTEMPTS=six", "1 to 100"]),
    ("a list that is no JSON", "serve", {"RIDEOUT_AGENT_COMMAND": "python"}, 64, ["RIDEOUT_AGENT_COMMAND", "JSON"]),
    ("settings that do not fit", "serve", {"RIDEOUT_HOLD_MIN_S": "9"}, 64, ["RIDEOUT_HOLD_MIN_S", "HOLD_MAX_S"]),
]


@pytest.mark.parametrize(
    ("command", "changes", "code", "names"), [case[1:] for case in TROUBLE], ids=[case[0] for case in TROUBLE]
)
def test_trouble_is_one_clear_line_that_names_the_thing(environment, monkeypatch, command, changes, code, names):
    """In this process: each start of Python with all libraries costs a second."""
    for name, value in {**environment, "RIDEOUT_LISTEN": f"127.0.0.1:{free_port()}", **changes}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("dispatcher.serve.configure_logging", lambda *_: None)
    ended = CliRunner().invoke(app, [command])
    lines = ended.stderr.splitlines()
    assert ended.exit_code == code, ended.output
    assert len(lines) == 1, ended.output
    assert lines[0].startswith("dispatcher: ")
    assert all(name in lines[0] for name in names), lines[0]
    assert "hunter2" not in ended.output


def test_a_port_that_is_taken_is_one_clear_line(environment):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = cli("serve", environment, RIDEOUT_LISTEN=address)
    assert ended.returncode == 2
    assert address in ended.stderr
    assert "Traceback" not in ended.stderr


def test_config_shows_the_settings_as_json_and_no_secret(environment):
    secrets = {"RIDEOUT_DATABASE_URL": DOWN, "RIDEOUT_API_TOKEN": "hunter2", "RIDEOUT_SIGNING_KEYS": "hunter2,hunter2"}
    ended = cli("config", environment, RIDEOUT_WINDOW_S="77", **secrets)
    shown = json.loads(ended.stdout)
    assert (shown["window_s"], shown["create_deadline_s"], shown["signing_keys"]) == (77, 5, "2 set")
    assert "hunter2" not in ended.stdout
