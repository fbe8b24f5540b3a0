"""What the agent does to its user code: environment, groups, leases, and every way to die (R11, R15, R16)."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dispatcher import agent as module
from tests.unit.agent_stage import (
    AGENT,
    RECORDED,
    REFUSED,
    RENEWED,
    RUN,
    Agent,
    Asked,
    Dispatcher,
    Play,
    http,
    runs,
    start_agent,
    wait_for,
)

Stage = Callable[..., Dispatcher]
Start = Callable[..., Agent]

FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
with open(sys.argv[1], "a") as pids:
    pids.write(f"{os.getpid()}\\n")
time.sleep(float(sys.argv[2]) if child else 600)
"""
"""User code that ignores SIGTERM and has a child that outlives it, in the same group."""


@pytest.fixture
def stage() -> Iterator[Stage]:
    up: list[Dispatcher] = []

    def begin(**script: list[Play]) -> Dispatcher:
        up.append(Dispatcher({"running": [RUN], "heartbeat": [RENEWED], "finished": [RECORDED], **script}))
        return up[-1]

    yield begin
    for dispatcher in up:
        dispatcher.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Agent] = []

    def begin(dispatcher: Dispatcher, *command: str, **options: Any) -> Agent:
        started.append(start_agent(tmp_path, [dispatcher.url], command, **options))
        return started[-1]

    yield begin
    for agent in started:
        agent.process.kill()
        agent.process.wait()


class Family:
    """`FAMILY` as a command, and who of it still runs."""

    def __init__(self, folder: Path, lasts_s: float) -> None:
        self._pids = folder / "pids"
        self.command = [sys.executable, "-c", FAMILY, str(self._pids), str(lasts_s)]

    def pids(self) -> list[int]:
        return [int(pid) for pid in self._pids.read_text().split()] if self._pids.exists() else []

    def wait_started(self) -> None:
        wait_for("both processes to run", lambda: len(self.pids()) == 2)

    def running(self) -> list[int]:
        return [pid for pid in self.pids() if runs(pid)]


def lease(lease_s: float, heartbeat_s: float, margin_s: float) -> list[Play]:
    return [http(200, {"decision": "run", "lease_s": lease_s, "heartbeat_s": heartbeat_s, "margin_s": margin_s})]


def renewed(lease_s: float, heartbeat_s: float, margin_s: float) -> bytes:
    return http(200, {"decision": "renewed", "lease_s": lease_s, "heartbeat_s": heartbeat_s, "margin_s": margin_s})


def test_user_code_gets_its_identity_and_nonce_but_never_the_token(stage, start, tmp_path):
    dispatcher = stage()
    show = "import os, json, sys; print(json.dumps([dict(os.environ), sys.stdin.read(), os.getpgrp() == os.getpid()]))"
    agent = start(dispatcher, sys.executable, "-c", show, RIDEOUT_LEDGER="/x", OTHER="kept")
    assert agent.ends() == 0
    environment, stdin, leads_a_group = json.loads(agent.stdout.read_text())
    assert stdin == ""
    assert leads_a_group
    assert "RIDEOUT_TOKEN" not in environment
    assert "secret-token" not in json.dumps(environment)
    assert environment["RIDEOUT_NONCE"] == dispatcher.asked[0].body["nonce"]
    expected = {
        "RIDEOUT_ROW": "7",
        "RIDEOUT_EPOCH": "3",
        "RIDEOUT_POD_UID": "uid-7",
        "RIDEOUT_LEDGER": "/x",
        "OTHER": "kept",
    }
    assert expected.items() <= environment.items()


def test_user_code_has_the_signals_of_a_fresh_process(stage, start):
    """Python ignores SIGPIPE; a program started by it must not. Signals 1 to 31: the C library owns 32 and 33."""
    agent = start(stage(), "grep", "SigIgn", "/proc/self/status")
    assert agent.ends() == 0
    assert int(agent.stdout.read_text().split()[1], 16) & 0x7FFF_FFFF == 0


def test_R16_the_end_is_reported_only_after_the_whole_group_was_killed(stage, start, tmp_path):
    family = Family(tmp_path, lasts_s=0.2)
    alive: list[list[int]] = []

    def finished(connection: socket.socket, _: Asked) -> None:
        alive.append(family.running())
        connection.sendall(RECORDED)

    dispatcher = stage(finished=[finished])
    assert start(dispatcher, *family.command).ends() == 0
    assert alive == [[]], "its child was left over, and ignores SIGTERM"
    assert len(family.pids()) == 2
    assert dispatcher.reports("finished")[0].body["outcome"] == "success"


def test_R16_an_agent_stopped_from_outside_reports_lost(stage, start, tmp_path):
    dispatcher = stage()
    says_goodbye = f"trap 'echo bye > {tmp_path}/bye; exit 0' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    agent = start(dispatcher, "sh", "-c", says_goodbye)
    wait_for("user code to run", (tmp_path / "up").exists)
    agent.send(signal.SIGTERM)
    assert agent.ends() == module.STOPPED
    assert (tmp_path / "bye").exists(), "SIGTERM reached it, and it had time"
    [finished] = dispatcher.reports("finished")
    assert (finished.body["outcome"], finished.body["exit_code"]) == ("lost", 0)


def test_R16_a_task_that_takes_too_long_fails_its_try_and_is_not_lost(stage, start, tmp_path):
    family = Family(tmp_path, lasts_s=600)
    dispatcher = stage()
    agent = start(dispatcher, *family.command, RIDEOUT_TIMEOUT_S="0.3", RIDEOUT_AGENT_GRACE_S="0.2")
    family.wait_started()
    assert agent.ends() == module.TIMED_OUT
    assert family.running() == []
    [finished] = dispatcher.reports("finished")
    assert (finished.body["outcome"], finished.body["exit_code"]) == ("failure", module.TIMED_OUT)


def test_R16_user_code_that_ignores_sigterm_is_killed_after_the_grace(stage, start, tmp_path):
    family = Family(tmp_path, lasts_s=600)
    dispatcher = stage()
    agent = start(dispatcher, *family.command, RIDEOUT_AGENT_GRACE_S="0.3")
    family.wait_started()
    agent.send(signal.SIGTERM)
    assert agent.ends() == module.STOPPED
    assert family.running() == []
    assert dispatcher.reports("finished")[0].body["outcome"] == "lost"


def test_R16_sigterm_after_user_code_ended_does_not_turn_its_end_into_lost(stage, start):
    dispatcher = stage(finished=[http(503, b""), RECORDED])
    agent = start(dispatcher, "true")
    agent.wait_said("retry", what="finished")
    agent.send(signal.SIGTERM)
    assert agent.ends() == 0
    assert {one.body["outcome"] for one in dispatcher.reports("finished")} == {"success"}


def test_R16_an_agent_stopped_while_it_asks_says_that_nothing_runs(stage, start, tmp_path):
    """Its RUNNING may have been accepted and the answer lost: the row would wait for a lease to pass."""
    dispatcher = stage(running=[http(503, b"")])
    agent = start(dispatcher, "touch", str(tmp_path / "ran"))
    agent.wait_said("retry", what="running")
    agent.send(signal.SIGTERM)
    assert agent.ends() == module.STOPPED
    assert dispatcher.reports("finished")[0].body["outcome"] == "lost"
    assert not (tmp_path / "ran").exists()


def test_R15_user_code_dies_with_its_agent(stage, start, tmp_path):
    family = Family(tmp_path, lasts_s=600)
    agent = start(stage(), *family.command)
    family.wait_started()
    agent.send(signal.SIGKILL)
    wait_for("the whole group to die", lambda: not family.running(), 5)


def test_R15_an_agent_that_dies_while_it_asks_leaves_nothing_behind(stage, start, tmp_path):
    agent = start(stage(running=[http(503, b"")]), "touch", str(tmp_path / "ran"))
    agent.wait_said("retry")
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    assert len(children) == 2
    agent.send(signal.SIGKILL)
    wait_for("code and guard to go", lambda: not any(runs(int(pid)) for pid in children), 5)
    assert not (tmp_path / "ran").exists()


def test_R15_user_code_does_not_outlive_its_guard(stage, start, tmp_path):
    family = Family(tmp_path, lasts_s=600)
    dispatcher = stage()
    agent = start(dispatcher, *family.command, RIDEOUT_AGENT_GRACE_S="0.2")
    family.wait_started()
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    [guard] = {int(pid) for pid in children} - set(family.pids())
    os.kill(guard, signal.SIGKILL)
    assert agent.ends() == 137
    assert family.running() == []
    assert dispatcher.reports("finished")[0].body["outcome"] == "lost"


def test_R15_heartbeats_keep_user_code_alive_past_its_first_lease(stage, start):
    dispatcher = stage(running=lease(1.5, 0.3, 0.3), heartbeat=[renewed(1.5, 0.3, 0.3)])
    assert start(dispatcher, "sleep", "3").ends() == 0
    assert len(dispatcher.reports("heartbeat")) >= 4
    identity = dispatcher.reports("running")[0].body
    assert all(one.body == identity for one in dispatcher.reports("heartbeat"))
    assert dispatcher.reports("finished")[0].body["outcome"] == "success"


def test_R15_an_agent_that_is_cut_off_has_killed_its_code_before_the_lease_ends(stage, start, tmp_path):
    family = Family(tmp_path, lasts_s=600)
    dispatcher = stage(running=lease(4, 0.5, 1), heartbeat=[http(503, b"")], finished=[http(503, b""), RECORDED])
    agent = start(dispatcher, *family.command)
    family.wait_started()
    asked_at = dispatcher.reports("running")[0].at
    wait_for("the fenced code to end", lambda: not family.running())
    assert time.monotonic() - asked_at < 4.0, "the lease ended first"
    assert agent.wait_said("stopping")["why"] == "lease"
    assert agent.ends() == 137
    outcomes = {one.body["outcome"] for one in dispatcher.reports("finished")}
    assert outcomes == {"lost"}, "reported past the lease, until it was answered (R16)"


def test_R15_a_frozen_agent_cannot_keep_its_code_past_the_lease(stage, start, tmp_path):
    family = Family(tmp_path, lasts_s=600)
    dispatcher = stage(running=lease(4, 0.5, 1), heartbeat=[renewed(4, 0.5, 1)])
    agent = start(dispatcher, *family.command)
    family.wait_started()
    agent.send(signal.SIGSTOP)
    frozen_at = time.monotonic()
    wait_for("the guard to end the code", lambda: not family.running())
    assert time.monotonic() - frozen_at < 4.0
    agent.send(signal.SIGCONT)
    assert agent.ends() == 137
    assert dispatcher.reports("finished")[0].body["outcome"] == "lost"


def test_R15_the_lease_is_counted_from_the_sending_of_running(stage, start, tmp_path):
    """The answer took longer than the lease: user code must not start on it."""

    def late(connection: socket.socket, _: Asked) -> None:
        time.sleep(1.5)
        connection.sendall(lease(1.5, 0.3, 0.3)[0])  # type: ignore[arg-type]

    dispatcher = stage(running=[late, RUN])
    assert start(dispatcher, "touch", str(tmp_path / "ran")).ends() == 0
    assert len(dispatcher.reports("running")) == 2
    assert len({str(one.body) for one in dispatcher.reports("running")}) == 1


def test_R15_a_heartbeat_that_is_refused_ends_the_code_and_reports_nothing(stage, start, tmp_path):
    family = Family(tmp_path, lasts_s=600)
    dispatcher = stage(running=lease(30, 0.2, 5), heartbeat=[REFUSED])
    agent = start(dispatcher, *family.command, RIDEOUT_AGENT_GRACE_S="0.2")
    assert agent.ends() == 0
    assert len(family.pids()) == 2
    assert family.running() == []
    assert dispatcher.reports("finished") == []
    assert agent.said("refused", what="heartbeat")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare(1) for a PID 1")
def test_R16_as_pid_1_it_also_ends_what_left_the_group(stage, tmp_path):
    """A container's usual case. `setsid` leaves the group; the end of the container would only come later."""
    pid_file = tmp_path / "pid"
    escaped = f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 600' & while ! [ -s {pid_file} ]; do sleep 0.05; done"
    alive: list[bool] = []

    def sleeps() -> bool:
        found = subprocess.run(["pgrep", "-f", "^sleep 600$"], capture_output=True, text=True, check=False)
        return any(Path(f"/proc/{pid}/environ").read_bytes().find(mark) >= 0 for pid in found.stdout.split())

    mark = f"MARK={tmp_path}".encode()

    def finished(connection: socket.socket, _: Asked) -> None:
        alive.append(sleeps())
        connection.sendall(RECORDED)

    dispatcher = stage(finished=[finished])
    environment = {
        "PATH": os.environ["PATH"], "RIDEOUT_ROW": "7", "RIDEOUT_EPOCH": "3", "RIDEOUT_TOKEN": "t",
        "RIDEOUT_POD_UID": "u", "RIDEOUT_DISPATCHERS": dispatcher.url, "MARK": str(tmp_path),
    }  # fmt: skip
    argv = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-I", str(AGENT), "--", "sh", "-c", escaped]
    ended = subprocess.run(argv, env=environment, capture_output=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr
    assert pid_file.exists()
    assert alive == [False]


def imported(*argv: str, **env: str) -> set[str]:
    """The modules that a run of an isolated interpreter imports."""
    ended = subprocess.run(
        [sys.executable, "-I", "-X", "importtime", *argv], env=env, capture_output=True, text=True, check=False
    )
    return {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if line.startswith("import time:")}


def test_it_starts_fast_before_it_forks_it_imports_next_to_nothing():
    """Its start is paid for by every pod. What the interpreter has anyway, and what `signal` and `select` need."""
    ours = imported(str(AGENT)) - imported("-c", "")
    assert ours <= imported("-c", "import signal, select, __future__")


def test_it_needs_the_standard_library_only_and_none_of_its_heavy_parts(stage):
    dispatcher = stage()
    found = imported(
        str(AGENT), "--", "true", PATH=os.environ["PATH"], RIDEOUT_ROW="7", RIDEOUT_EPOCH="3", RIDEOUT_TOKEN="t",
        RIDEOUT_POD_UID="u", RIDEOUT_DISPATCHERS=dispatcher.url,
    )  # fmt: skip
    assert dispatcher.reports("finished")
    client = imported("-c", "import http.client, json, threading, urllib.parse, signal, select, __future__")
    assert "http.client" in found
    assert found - client <= {"encodings.idna", "stringprep", "unicodedata"}
    ours = {name.partition(".")[0] for name in found - imported("-c", "")}
    assert ours <= sys.stdlib_module_names
