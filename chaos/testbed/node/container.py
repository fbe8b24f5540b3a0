"""A pod's container as a process group: started within a bound, ended as a whole, its stderr listened to.

As in a container, nothing outlives the first process: when it ends, the rest of its group is killed, and so is what
left the group by setsid(): the node is a *subreaper* (prctl), so orphans of its children become its own, and those that
carry the pod's uid in their environment are killed and waited for. Only then is the container's end recorded.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import orjson

from chaos.testbed.kube import Json
from chaos.testbed.node.manifest import BadPod, PodSpec
from chaos.testbed.reaper import start_time

PR_SET_CHILD_SUBREAPER = 36
STARTS_AT_ONCE = 4  # Python processes; two cores start only 20 to 30 a second, and more at once only slows each
STARTING_S = 2.0  # a start counts as such until the process says its first word, but no longer than this
# A pod sees its own variables and these, never the suite's.
INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "RIDEOUT_TESTBED")


class Runtime(Protocol):
    """Something that runs one pod: a process group, or an agent played by the node itself."""

    async def start(self) -> None:
        """Raises BadPod when it cannot be started."""

    async def wait(self) -> int:
        """The exit code (128 + n for signal n), once nothing of it runs any more."""

    def stop(self) -> None:
        """Ask it to end (SIGTERM)."""

    def kill(self) -> None:
        """End it (SIGKILL)."""


class Processes:
    """What the containers of one node share: the slots for starts, and who is whose child."""

    def __init__(self, output: int) -> None:
        """`output` is a descriptor open for appending that takes the pods' stdout, and their stderr less events."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.output = output
        self.slots = asyncio.Semaphore(STARTS_AT_ONCE)
        self.own: set[int] = set()

    def end_strays(self, uid: str) -> bool:
        """Kill orphans of the pod, reap every orphan that has ended. True when none of the pod's is left."""
        clean, mark = True, f"={uid}".encode()
        for pid in self._children() - self.own:
            if _is_zombie(pid):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            elif _mentions(pid, mark):
                clean = False
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return clean

    @staticmethod
    def _children() -> set[int]:
        pids: set[int] = set()
        for path in Path("/proc/self/task").glob("*/children"):
            with contextlib.suppress(OSError):
                pids.update(int(word) for word in path.read_text().split())
        return pids


class Container:
    """One pod's process group."""

    def __init__(
        self, spec: PodSpec, processes: Processes, defaults: dict[str, str], hear: Callable[[Json], None]
    ) -> None:
        """`defaults` are variables a pod gets unless it sets them; `hear` takes each event the agent says on stderr."""
        self._spec = spec
        self._processes = processes
        self._defaults = defaults
        self._hear = hear
        self._child: subprocess.Popen[bytes] | None = None
        self._spoke = asyncio.Event()
        self._stderr: asyncio.Task[None] | None = None
        self._slot: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    async def start(self) -> None:
        inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}
        await self._processes.slots.acquire()
        try:
            # Popen blocks until the exec: a millisecond, and the child is known before anything else is.
            self._child = subprocess.Popen(
                self._spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=self._processes.output,
                stderr=subprocess.PIPE,
                env={**inherited, **self._defaults, **self._spec.env},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self._processes.slots.release()
            raise BadPod(f"cannot run {self._spec.argv[0]}: {error.strerror}") from error
        self._processes.own.add(self._child.pid)
        self._stderr = asyncio.create_task(self._listen())
        self._slot = asyncio.create_task(self._release_slot())

    async def wait(self) -> int:
        assert self._child is not None
        await exited(self._child.pid)
        code = self._child.wait()
        self._spoke.set()
        while not self._processes.end_strays(self._spec.uid) or _group_runs(self._child.pid):
            self._signal(signal.SIGKILL)
            await asyncio.sleep(0.01)
        self._processes.own.discard(self._child.pid)
        if self._stderr:
            with contextlib.suppress(TimeoutError):  # the write ends are all closed; the rest is in the pipe
                await asyncio.wait_for(self._stderr, 5)
        return code if code >= 0 else 128 - code

    def stop(self) -> None:
        # As a runtime does: the signal goes to the container's first process, which sees to its own children.
        if self._child and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._child:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)

    async def _release_slot(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._spoke.wait(), STARTING_S)
        self._processes.slots.release()

    async def _listen(self) -> None:
        assert self._child is not None
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._child.stderr
        )
        try:
            rest = b""
            while chunk := await reader.read(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._line(line)
            if rest:
                self._line(rest)
        finally:
            transport.close()

    def _line(self, line: bytes) -> None:
        self._spoke.set()
        if line.startswith(b'{"agent"'):
            with contextlib.suppress(orjson.JSONDecodeError):
                self._hear(orjson.loads(line))
                return
        os.write(self._processes.output, f"{self._spec.namespace}/{self._spec.name}: ".encode() + line + b"\n")


class Adopted:
    """A container that an earlier life of the node started and that still runs. Its exit code cannot be had."""

    CODE_LOST = 255

    def __init__(self, pid: int, start: int) -> None:
        self._pid, self._start = pid, start

    async def start(self) -> None:
        """It runs already."""

    async def wait(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self._pid)  # not our child: poll(2) still tells its end
            if start_time(self._pid) == self._start:
                await _readable(descriptor)
            os.close(descriptor)
        return self.CODE_LOST

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if start_time(self._pid) == self._start:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, number)


async def exited(pid: int) -> None:
    """Return when a child has ended; it is left for its waiter to reap."""
    descriptor = os.pidfd_open(pid)
    try:
        await _readable(descriptor)
    finally:
        os.close(descriptor)


async def _readable(descriptor: int) -> None:
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


def _group_runs(group: int) -> bool:
    """Whether the group still has a member. Its leader is reaped; orphans' zombies are reaped by `end_strays`."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_zombie(pid: int) -> bool:
    return start_time(pid) is None


def _mentions(pid: int, mark: bytes) -> bool:
    try:
        return any(variable.endswith(mark) for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return False
