"""Child processes as the suite needs them: a group each, a pid file, a log, and signals that cannot hit a stranger.

`Supervisor` holds what the processes of one testbed share: where their logs and pid files go, the token that marks
them, and the reaper that ends them if the suite dies (see `reaper`). `ManagedProcess` is one of them and can be
started again with the same command, which is what faults do.
"""

import asyncio
import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.errors import ChaosError
from chaos.testbed import reaper

Ready = Callable[[], Awaitable[bool]]
POLL_S = 0.02

# What a server says before it gives up. klog starts such lines with E or F and a date, others name the level.
_TELLING = re.compile(r"^[EF]\d{4} |\b(error|fatal|panic|failed|refused|in use|invalid|unknown)\b", re.IGNORECASE)
# Proxies would swallow loopback traffic, and no child may pick up the user's own cluster.
_NOT_INHERITED = re.compile(r"(?i)^(\w*_proxy|KUBECONFIG|KUBERNETES_\w+|RIDEOUT_\w+|PG[A-Z]+)$")


@dataclass(frozen=True)
class User:
    """An unprivileged user to run a process as, when the suite itself runs as root."""

    uid: int
    gid: int


class Supervisor:
    """The processes of one testbed under `directory` (logs/ and pids/); `state` is removed when it ends."""

    def __init__(self, directory: Path, state: Path) -> None:
        self.logs = directory / "logs"
        self.pids = directory / "pids"
        self.state = state
        self.token = secrets.token_hex(8)
        self.processes: dict[str, ManagedProcess] = {}
        self.logs.mkdir(parents=True, exist_ok=True)
        self.pids.mkdir(parents=True, exist_ok=True)
        # -I -S: no site-packages to read, up in 15 ms. The pipe's write end is ours alone (close_fds, O_CLOEXEC).
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__, str(self.pids), self.token, str(state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def process(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        ready: Ready | None = None,
        user: User | None = None,
        cwd: Path | None = None,
        stop_signal: int = signal.SIGTERM,
    ) -> "ManagedProcess":
        """A process that is not started yet. `name` names its log and its pid file; it takes the place of an ended
        one of that name."""
        if name in self.processes and self.processes[name].alive:
            raise ValueError(f"process {name} runs already")
        made = ManagedProcess(self, name, [str(word) for word in argv], dict(env or {}), ready, user, cwd, stop_signal)
        self.processes[name] = made
        return made

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """The environment of a child: the suite's own less proxies and foreign clusters, marked with the token."""
        inherited = {key: value for key, value in os.environ.items() if not _NOT_INHERITED.match(key)}
        return {**inherited, **extra, reaper.TOKEN_VARIABLE: self.token}

    def close(self) -> None:
        """End everything that still runs, by the reaper's own hand, and wait for it. Safe to call twice."""
        if self._reaper.stdin and not self._reaper.stdin.closed:
            self._reaper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._reaper.wait(reaper.LIMIT_S + 5)
        for process in self.processes.values():
            process.collect()


class ManagedProcess:
    """One child process, in its own process group. `start` may be called again after an end."""

    def __init__(
        self,
        supervisor: Supervisor,
        name: str,
        argv: list[str],
        env: dict[str, str],
        ready: Ready | None,
        user: User | None,
        cwd: Path | None,
        stop_signal: int,
    ) -> None:
        self.name = name
        self.argv = argv
        self.env = env
        self.log = supervisor.logs / f"{name}.log"
        self.pid_file = supervisor.pids / f"{name}.pid"
        self.starts = 0
        self._supervisor = supervisor
        self._ready = ready
        self._user = user
        self.cwd = cwd or Path("/")
        self._stop_signal = stop_signal
        self._child: subprocess.Popen[bytes] | None = None
        self._log_offset = 0

    @property
    def pid(self) -> int | None:
        """The pid while it runs, else None."""
        return self._child.pid if self._child and self.alive else None

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        """As subprocess has it: negative for a signal; None while it runs or before the first start."""
        return self._child.poll() if self._child else None

    def start(self) -> None:
        """Start, or start again with the same command, environment and log. Raises ChaosError if it cannot be."""
        if self.alive:
            raise ChaosError(f"{self.name} is running already (pid {self.pid})", log=self.log)
        with self.log.open("ab") as log:
            self._log_offset = log.tell()
            try:
                self._child = subprocess.Popen(
                    self.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._supervisor.environment(self.env),
                    cwd=self.cwd,
                    start_new_session=True,
                    user=self._user.uid if self._user else None,
                    group=self._user.gid if self._user else None,
                    extra_groups=[] if self._user else None,
                )
            except OSError as error:
                raise ChaosError(f"cannot start {self.name}: {error.strerror}: {self.argv[0]}", log=self.log) from error
        self.starts += 1
        reaper.write_pid_file(self.pid_file, self._child.pid)

    async def terminate(self, grace_s: float = 10.0) -> int | None:
        """Ask the group to end (SIGTERM), insist after `grace_s` (SIGKILL). Returns the exit code."""
        if self.alive:
            self.resume()  # a stopped process does not take its SIGTERM
            self.signal(self._stop_signal)
            try:
                await self.wait_exit(grace_s)
            except ChaosError:
                self.kill()
                await self.wait_exit(5)
        self.collect()
        return self.exit_code

    def end_now(self, number: int, wait_s: float) -> None:
        """For the way out, where nothing may be awaited: signal the group and block until it ended or time is up."""
        self.signal(number)
        if self._child:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(wait_s)

    def kill(self) -> None:
        """SIGKILL the group."""
        self.signal(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP the group: alive, its sockets open, and it answers nothing."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Send a signal to the group; nothing happens when it has ended (a reaped pid is never signalled)."""
        if self._child and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    async def wait_exit(self, deadline_s: float) -> int:
        """The exit code, once it has ended. Raises ChaosError after `deadline_s`."""
        end = time.monotonic() + deadline_s
        while self.alive:
            if time.monotonic() > end:
                raise ChaosError(f"{self.name} (pid {self.pid}) did not end within {deadline_s:g} s", log=self.log)
            await asyncio.sleep(POLL_S)
        self.collect()
        code = self.exit_code
        if code is None:
            raise ChaosError(f"{self.name} was never started", log=self.log)
        return code

    async def wait_ready(self, deadline_s: float) -> None:
        """Return once its ready check says so. Raises ChaosError when it ends first or the deadline passes."""
        end = time.monotonic() + deadline_s
        while True:
            if not self.alive:
                self.collect()
                said = f"{self.name} ended with {self.exit_code} at its start: {self.telling()}"
                raise ChaosError(said, log=self.log)
            if self._ready is None or await self._ready():
                return
            if time.monotonic() > end:
                raise ChaosError(f"{self.name} was not ready within {deadline_s:g} s: {self.telling()}", log=self.log)
            await asyncio.sleep(POLL_S)

    def telling(self) -> str:
        """The last line of this start's log that looks like a reason, else its last line, cut to 300 characters."""
        with self.log.open("rb") as file:
            file.seek(self._log_offset)
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        reasons = [line for line in lines[-200:] if _TELLING.search(line)]
        return (reasons or lines or ["it said nothing"])[-1][:300]

    def collect(self) -> None:
        """Drop the pid file of an ended process."""
        if not self.alive:
            self.pid_file.unlink(missing_ok=True)
