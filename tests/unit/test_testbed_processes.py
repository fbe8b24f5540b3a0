"""Child processes: groups, pid files, signals, and that nothing outlives its suite."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.errors import ChaosError
from chaos.testbed import reaper
from chaos.testbed.processes import Supervisor

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    state = tmp_path / "state"
    state.mkdir()
    made = Supervisor(tmp_path / "run", state)
    yield made
    made.close()


def running(pid: int) -> bool:
    return reaper.start_time(pid) is not None


def wait_for(what: Callable[[], object], name: str, deadline_s: float = 20) -> object:
    end = time.monotonic() + deadline_s
    while not (value := what()):
        assert time.monotonic() < end, f"waited {deadline_s} s for {name}"
        time.sleep(0.01)
    return value


async def never() -> bool:
    return False


async def test_a_process_has_its_own_group_a_pid_file_and_a_log(supervisor: Supervisor):
    process = supervisor.process("one", ["sh", "-c", "echo hello; sleep 60"])
    process.start()
    pid = process.pid
    assert pid is not None
    assert os.getpgid(pid) == pid != os.getpgid(0)
    assert reaper.read_pid_file(process.pid_file) == pid
    assert process.pid_file.parent == supervisor.pids
    wait_for(lambda: process.log.read_text() == "hello\n", "its word in the log")
    assert await process.terminate(5) == -signal.SIGTERM
    assert not process.pid_file.exists()
    process.start()
    assert process.pid not in (None, pid), "the same command again"


async def test_terminate_insists(supervisor: Supervisor):
    process = supervisor.process("stubborn", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    process.start()
    wait_for(lambda: "ready" in process.log.read_text(), "its trap")
    assert await process.terminate(grace_s=0.2) == -signal.SIGKILL


async def test_terminate_reaches_a_paused_process(supervisor: Supervisor):
    process = supervisor.process("paused", ["sleep", "60"])
    process.start()
    process.pause()
    wait_for(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "T", "its stop")
    assert await process.terminate(5) == -signal.SIGTERM


async def test_kill_ends_the_whole_group(supervisor: Supervisor, tmp_path: Path):
    process = supervisor.process("parent", ["sh", "-c", f"sleep 600 & echo $! > {tmp_path / 'child'}; wait"])
    process.start()
    child = int(str(wait_for(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text(), "the child")))
    process.kill()
    assert await process.wait_exit(5) == -signal.SIGKILL
    wait_for(lambda: not running(child), "the end of the child")


async def test_an_end_at_the_start_is_told_with_its_reason_and_log(supervisor: Supervisor):
    process = supervisor.process(
        "server",
        ["sh", "-c", "echo starting; echo 'E1130 listen tcp 127.0.0.1:1: bind: address already in use'; exit 1"],
        ready=never,
    )
    process.start()
    with pytest.raises(ChaosError, match=r"server ended with 1 at its start: .*address already in use") as failure:
        await process.wait_ready(5)
    assert failure.value.log == process.log


async def test_only_this_starts_words_are_told(supervisor: Supervisor):
    process = supervisor.process("again", ["sh", "-c", "echo error: old; exit 1"])
    process.start()
    await process.wait_exit(5)
    process.argv[-1] = "echo new; exit 2"
    process.start()
    await process.wait_exit(5)
    assert process.telling() == "new"


async def test_what_is_never_ready_ends_in_a_deadline(supervisor: Supervisor):
    process = supervisor.process("slow", ["sleep", "60"], ready=never)
    process.start()
    with pytest.raises(ChaosError, match=r"slow was not ready within 0\.1 s: it said nothing"):
        await process.wait_ready(0.1)


def test_a_missing_program_is_one_clear_line(supervisor: Supervisor):
    with pytest.raises(ChaosError, match="cannot start none: No such file or directory: /nowhere/none"):
        supervisor.process("none", ["/nowhere/none"]).start()


def test_children_see_no_proxy_and_no_foreign_cluster(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTPS_PROXY", "http_proxy", "KUBECONFIG", "RIDEOUT_MODE", "PGHOST", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.setenv(name, "theirs")
    monkeypatch.setenv("PATH", "/bin")
    made = supervisor.environment({"RIDEOUT_POLICY": "window"})
    assert "theirs" not in made.values()
    assert made["PATH"] == "/bin"
    assert made["RIDEOUT_POLICY"] == "window"
    assert made[reaper.TOKEN_VARIABLE] == supervisor.token


def test_a_recycled_pid_is_never_taken_for_ours(tmp_path: Path):
    """The file names a living pid, but another start time: it is somebody else's process."""
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        file = tmp_path / "old.pid"
        reaper.write_pid_file(file, innocent.pid)
        record = json.loads(file.read_text())
        assert reaper.read_pid_file(file) == innocent.pid
        file.write_text(json.dumps(record | {"start": record["start"] - 1}))
        assert reaper.read_pid_file(file) is None
        assert list(reaper.survivors(tmp_path, "no such token", tmp_path)) == []
        reaper.sweep(tmp_path, "no such token", tmp_path / "state")
        assert innocent.poll() is None
        assert not file.exists()
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"pid": "x", "start": 1}', '{"pid": 1, "start": null}'])
def test_a_damaged_pid_file_names_nobody(tmp_path: Path, damage: str):
    (tmp_path / "x.pid").write_text(damage)
    assert reaper.read_pid_file(tmp_path / "x.pid") is None


def test_a_name_with_parentheses_does_not_confuse_proc(tmp_path: Path):
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "60"])
    try:
        wait_for(lambda: ") R 1 (b" in Path(f"/proc/{process.pid}/stat").read_text(), "the exec")
        other = subprocess.Popen(["sleep", "60"])
        assert (reaper.start_time(process.pid) or 0) <= (reaper.start_time(other.pid) or 0)
        other.kill()
        other.wait()
    finally:
        process.kill()
        process.wait()


SUITE = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell starts with it ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from pathlib import Path
from chaos.testbed.processes import Supervisor
run = Path(sys.argv[1])
(run / "state").mkdir(parents=True)
supervisor = Supervisor(run, run / "state")
plain = supervisor.process("plain", ["sleep", "600"])
family = supervisor.process("family", ["sh", "-c", "sleep 600 & setsid sleep 600 & wait"])
paused = supervisor.process("paused", ["sleep", "600"])
for process in (plain, family, paused):
    process.start()
paused.pause()
stranger = subprocess.Popen(["sleep", "600"], env=supervisor.environment({}), start_new_session=True)  # no pid file
time.sleep(0.3)
print(supervisor.token, flush=True)
time.sleep(600)
"""


def carriers(token: str) -> set[int]:
    """Every process that carries the token, found without the reaper's code."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if token.encode() in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda n: n.name)
def test_nothing_outlives_the_suite_whatever_kills_it(tmp_path: Path, number: signal.Signals):
    run = tmp_path / "run"
    suite = subprocess.Popen(
        [sys.executable, "-c", SUITE, run],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert suite.stdout is not None
    token = suite.stdout.readline().strip()
    assert len(carriers(token)) >= 6, "sleeps, a shell, one that left its group, one without a pid file"
    suite.send_signal(number)
    suite.wait(20)
    suite.stdout.close()
    wait_for(lambda: not (run / "state").exists(), "the reaper to finish")
    assert carriers(token) == set()
    assert list((run / "pids").glob("*.pid")) == []


def test_ctrl_c_at_a_terminal_does_not_reach_the_servers(supervisor: Supervisor):
    """It goes to the foreground process group; the suite decides what ends, and in which order."""
    process = supervisor.process("server", ["sleep", "60"])
    process.start()
    assert process.pid is not None
    assert os.getsid(process.pid) == process.pid != os.getsid(0)


def test_a_shell_in_the_state_directory_is_left_alone(tmp_path: Path):
    state = tmp_path / "state"
    state.mkdir()
    shell = subprocess.Popen(["sleep", "60"], cwd=state)
    try:
        assert list(reaper.survivors(tmp_path, "no such token", state)) == []
    finally:
        shell.kill()
        shell.wait()
