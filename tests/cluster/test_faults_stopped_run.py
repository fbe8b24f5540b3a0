"""A run that is stopped while everything is down: healed or gone, nothing left running, its records kept."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.testbed.reaper import TOKEN_VARIABLE
from chaos.traffic.launcher import REPOSITORY
from chaos.undo import FILE

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]
UNTIL_HOLD_S = 150.0


def start_and_wait_for_the_hold(runs: Path) -> tuple[subprocess.Popen[str], Path]:
    """A quick run whose control plane was just taken down."""
    argv = [sys.executable, "-m", "chaos", "run", "upgrade", "--profile", "quick", "--runs-dir", str(runs)]
    child = subprocess.Popen(
        argv, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    end = time.monotonic() + UNTIL_HOLD_S
    assert child.stdout is not None
    while "] hold (" not in (line := child.stdout.readline()):
        assert line, f"the run ended by itself with {child.wait()}"
        assert time.monotonic() < end, f"no hold within {UNTIL_HOLD_S:g} s; it was at: {line}"
    return child, (runs / "latest").resolve()


def left_running(run: Path) -> list[str]:
    """Processes that carry a testbed's mark and write into this run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if TOKEN_VARIABLE.encode() in environment and str(run) in command + environment.decode(errors="replace"):
            found.append(command)
    return found


def wait_until_nothing_runs(run: Path, deadline_s: float = 15.0) -> None:
    end = time.monotonic() + deadline_s
    while (left := left_running(run)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


def test_sigterm_in_an_outage_heals_and_keeps_the_records(tmp_path: Path):
    child, run = start_and_wait_for_the_hold(tmp_path)
    assert left_running(run), "or this test sees nothing"
    child.send_signal(signal.SIGTERM)
    said, _ = child.communicate(timeout=90)
    assert child.returncode == 2
    assert f"unknown; kept: {run}" in said
    assert "Traceback" not in said
    assert "control-plane-stop: heal" in said
    wait_until_nothing_runs(run)
    assert not (run / FILE).exists(), "healed"
    result = json.loads((run / "result.json").read_text())
    assert result["verdict"] == "unknown"
    assert "the run was stopped before its end" in result["reasons"]
    assert (run / "audit.jsonl").stat().st_size > 0


def test_a_killed_suite_leaves_nothing_running_and_its_undo_on_disk(tmp_path: Path):
    child, run = start_and_wait_for_the_hold(tmp_path)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate(timeout=30)
    wait_until_nothing_runs(run)
    assert "control-plane-stop" in json.loads((run / FILE).read_text())
    healed = subprocess.run(
        [sys.executable, "-m", "chaos", "heal", "--runs-dir", str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert healed.returncode == 0
    assert "etcd went with its testbed" in healed.stdout
    assert not (run / FILE).exists()
