"""A testbed that stays: `make up` starts one in the background, `make down` ends it.

A *holder* process owns it, in a session of its own, as a run of the suite would; if it dies, its reaper cleans up.
Its directory is `runs/testbed/`: logs, the audit log, `holder.log`, and `up.json`, which is there while the testbed is.
"""

import asyncio
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from chaos.errors import ChaosError
from chaos.testbed import tools
from chaos.testbed.bed import REPOSITORY, Progress, Testbed
from chaos.testbed.reaper import read_pid_file, start_time, write_pid_file

DIRECTORY = REPOSITORY / "runs" / "testbed"
LANES = ("buffered", "tick", "control")
START_S = 180.0
STOP_S = 30.0


def up(directory: Path, progress: Progress, lanes: Sequence[str] = LANES) -> str:
    """Start a holder and wait until its testbed is ready; says so, too, when one is up already. Returns what to print.

    Raises ChaosError when it does not come up; nothing is left running then.
    """
    if holder(directory):
        return f"a testbed is up already; `make down` ends it\n{describe(_read(directory))}"
    tools.find_or_build(progress)  # here, where the progress can be seen
    log = directory / "holder.log"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        output = log.open("wb")
    except OSError as error:
        raise ChaosError(f"cannot write to {directory}: {error.strerror}") from error
    with output:
        child = subprocess.Popen(
            [sys.executable, "-m", "chaos.testbed", "--directory", str(directory), "hold", "--lanes", ",".join(lanes)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=REPOSITORY,
        )
    try:
        _await_up(directory, child, log)
    except BaseException:  # Ctrl-C as well: half a testbed is no use to anybody
        child.terminate()
        child.wait(STOP_S)
        raise
    return describe(_read(directory))


def down(directory: Path) -> str:
    """End the testbed that is up, and wait until it is gone. Returns what to print."""
    pid = holder(directory)
    if pid is None:
        return "no testbed is up"
    begun = start_time(pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        os.kill(pid, number)
        end = time.monotonic() + STOP_S
        while start_time(pid) == begun and time.monotonic() < end:
            time.sleep(0.05)
        if start_time(pid) != begun:
            break
    # Killed, its reaper still cleans up: wait for the state directory to go.
    state = Path(_read(directory).get("state", "/nonexistent"))
    end = time.monotonic() + STOP_S
    while state.exists() and time.monotonic() < end:
        time.sleep(0.05)
    (directory / "up.json").unlink(missing_ok=True)
    return "the testbed is down"


def holder(directory: Path) -> int | None:
    """The pid of the process that holds a testbed in `directory`, None when there is none."""
    return read_pid_file(directory / "holder.pid")


async def hold(directory: Path, lanes: Sequence[str]) -> None:
    """Be the holder: start a testbed, say that it is up, and end it on SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        _lock(lock, directory)
        _clear(directory)
        write_pid_file(directory / "holder.pid", os.getpid())
        running = asyncio.create_task(_run(directory, lanes, stop))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done() and not (directory / "up.json").exists():
                running.cancel()  # told to stop while it was still starting
            await asyncio.gather(running, return_exceptions=False)
        except asyncio.CancelledError:
            pass
        finally:
            stopping.cancel()
            (directory / "holder.pid").unlink(missing_ok=True)


async def _run(directory: Path, lanes: Sequence[str], stop: asyncio.Event) -> None:
    up_file = directory / "up.json"
    async with Testbed.start(directory, lanes, lambda line: print(line, flush=True)) as bed:
        temporary = up_file.with_suffix(".new")
        temporary.write_text(json.dumps(_facts(bed), indent=1) + "\n")
        temporary.chmod(0o600)  # it holds the databases' password
        temporary.replace(up_file)
        try:
            await stop.wait()
        finally:
            up_file.unlink(missing_ok=True)


def _facts(bed: Testbed) -> dict[str, Any]:
    return {
        "kubernetes": bed.kubernetes_version,
        "kubeconfig": str(bed.kubeconfig("admin")),
        "kubeconfigs": {name: str(bed.kubeconfig(name)) for name in ("dispatcher", "probe")},
        "kubectl": str(bed.binaries["kubectl"]),
        "psql": str(bed.database.psql),
        "databases": {lane: bed.database_url(lane, driver="postgresql") for lane in bed.namespaces},
        "namespaces": bed.namespaces,
        "toxiproxy": bed.proxies.control,
        "logs": str(bed.logs),
        "state": str(bed.supervisor.state),
    }


def describe(facts: dict[str, Any]) -> str:
    """How to point kubectl and psql at a testbed that is up."""
    if not facts:
        return "it is still starting: try again in a few seconds"
    database = next(iter(facts["databases"].values()))
    return "\n".join(
        [
            f"testbed up: Kubernetes {facts['kubernetes']}, lanes {', '.join(facts['namespaces'])}",
            f"  export KUBECONFIG={facts['kubeconfig']}",
            f"  export PATH={Path(facts['kubectl']).parent}:$PATH",
            f"  kubectl get pods --namespace {next(iter(facts['namespaces'].values()))}",
            f"  {facts['psql']} {database}",
            f"  Toxiproxy {facts['toxiproxy']}   as the dispatcher {facts['kubeconfigs']['dispatcher']}",
            f"  logs {facts['logs']}",
            "  make down ends it",
        ]
    )


def _await_up(directory: Path, child: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + START_S
    while not (directory / "up.json").exists() or holder(directory) != child.pid:
        if child.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines()
            raise ChaosError(lines[-1] if lines else "the testbed's holder ended without a word", log=log)
        if time.monotonic() > end:
            raise ChaosError(f"the testbed was not up within {START_S:g} s", log=log)
        time.sleep(0.05)


def _lock(file: TextIO, directory: Path) -> None:
    """Two holders that start at once: one gets the lock, and keeps it for its life."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ChaosError(f"another testbed is up or starting in {directory}: `make down` ends it") from None


def _clear(directory: Path) -> None:
    """Yesterday's logs would be mistaken for today's."""
    for name in ("logs", "pids"):
        shutil.rmtree(directory / name, ignore_errors=True)
    for name in ("up.json", "audit.jsonl", "history.jsonl", "ledger.jsonl"):
        (directory / name).unlink(missing_ok=True)


def _read(directory: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads((directory / "up.json").read_text())
    except (OSError, ValueError):
        return {}
    return facts
