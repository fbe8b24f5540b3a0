"""Outlives the suite by a moment and ends everything the suite started. Standard library only; see `main`.

One reaper a testbed, in a session of its own so that Ctrl-C does not reach it. It reads a pipe whose only other end
is held by the suite: the kernel closes that end however the suite dies, SIGKILL included. Then the reaper kills

1. every process group that has a pid file (pid and start time must agree, so a recycled pid is never touched),
2. every process that carries the testbed's token in its environment (what started processes of its own: the node's
   pods, a load generator's workers, a child whose pid file was not written yet),
3. every `postgres` that works inside the testbed's state directory (the backends lead sessions of their own and
   write their titles over their environment; a shell that somebody opened there is left alone),

until a look around finds none, and removes the state directory.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

TOKEN_VARIABLE = "RIDEOUT_TESTBED"
LIMIT_S = 10.0  # how long it goes on; a process in uninterruptible sleep must not keep a CI job alive for ever


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (proc(5), field 22), or None when it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()  # the name before it may hold spaces and parentheses
    return None if fields[0] in "ZX" else int(fields[19])


def write_pid_file(path: Path, pid: int) -> None:
    """Record a process so that it can be told from a later one with the same pid."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps({"pid": pid, "start": start_time(pid)}))
    temporary.replace(path)


def read_pid_file(path: Path) -> int | None:
    """The pid a file records if that very process still runs, else None (gone, recycled, or no such file)."""
    try:
        record = json.loads(path.read_text())
        pid, start = int(record["pid"]), record["start"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if start is not None and start_time(pid) == start else None


def survivors(pids: Path, token: str, state: Path) -> Iterator[int]:
    """Pids of the testbed's processes that still run, each once; pid files first."""
    seen = {os.getpid(), os.getppid(), 1}
    for file in sorted(pids.glob("*.pid")):
        if (pid := read_pid_file(file)) and pid not in seen:
            seen.add(pid)
            yield pid
    mark = f"{TOKEN_VARIABLE}={token}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in seen or start_time(int(entry.name)) is None:
            continue
        if _carries(entry, mark) or _is_backend(entry, state):
            yield int(entry.name)


def _carries(process: Path, mark: bytes) -> bool:
    try:
        return mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # somebody else's
        return False


def _is_backend(process: Path, state: Path) -> bool:
    try:
        return (process / "comm").read_text() == "postgres\n" and (process / "cwd").readlink().is_relative_to(state)
    except OSError:
        return False


def kill(pid: int) -> None:
    """SIGKILL to the process and, where it leads a group, to the whole group."""
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def sweep(pids: Path, token: str, state: Path) -> int:
    """Kill until none is left or LIMIT_S has passed. Returns how many processes were killed."""
    deadline, killed = time.monotonic() + LIMIT_S, set()
    while found := list(survivors(pids, token, state)):
        for pid in found:
            kill(pid)
        killed.update(found)
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    for file in pids.glob("*.pid"):
        if read_pid_file(file) is None:
            file.unlink(missing_ok=True)
    shutil.rmtree(state, ignore_errors=True)
    return len(killed)


def main() -> None:
    """`reaper.py PIDS TOKEN STATE`: wait for the end of standard input, then sweep."""
    pids, token, state = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    sweep(pids, token, state)


if __name__ == "__main__":
    main()
