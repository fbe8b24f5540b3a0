"""Lite: run an attempt's agent as a child process of the dispatcher, without Kubernetes (R9).

The same agent, the same fence. There is no API that could be away, so nothing here is ever Unavailable: a spec
that cannot start is Rejected, a machine without room for one more process is Deferred (nothing was started).
"""

import asyncio
import errno
import os
import uuid
from collections.abc import Callable, Sequence

import structlog

from dispatcher.clock import Now
from dispatcher.errors import SpecRefused, classify_exception
from dispatcher.executors import Attempt
from dispatcher.executors.pod import command_of, environment_of
from dispatcher.rules import Disposition, Outcome, Verdict

log = structlog.get_logger(__name__)

_NO_ROOM = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


class SubprocessExecutor:
    """Each attempt's agent leads a process group of its own; the agent ends its user code when it is stopped."""

    def __init__(
        self, *, clock: Now, sign: Callable[[int, int], str], agent_command: Sequence[str], dispatchers: Sequence[str]
    ) -> None:
        self._clock = clock
        self._sign = sign
        self._agent_command = tuple(agent_command)
        self._dispatchers = tuple(dispatchers)
        self._agents: set[asyncio.Task[None]] = set()

    async def create(self, attempt: Attempt) -> Outcome:
        started_at = self._clock.now()
        return Outcome(await self._start(attempt), started_at, self._clock.now())

    async def close(self) -> None:
        """Agents outlive the dispatcher, as pods do; they report to the next one."""
        for task in self._agents:
            task.cancel()

    async def _start(self, attempt: Attempt) -> Verdict:
        uid = str(uuid.uuid4())
        try:
            command = [*self._agent_command, "--", *command_of(attempt.spec)]
            environment = environment_of(attempt, self._sign(attempt.row_id, attempt.epoch), self._dispatchers)
            process = await asyncio.create_subprocess_exec(
                *command,
                env={"PATH": os.environ.get("PATH", os.defpath), **environment, "RIDEOUT_POD_UID": uid},
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except SpecRefused as error:
            return classify_exception(error, sent=False) or _rejected(error)
        except OSError as error:
            if error.errno in _NO_ROOM:
                cause = f"no room for a process: {errno.errorcode[error.errno or 0]}"
                return Verdict(Disposition.DEFERRED, cause, "R9")
            return _rejected(error)
        except ValueError as error:  # a NUL byte in an argument or a value
            return _rejected(error)
        self._reap_later(process)
        return Verdict(
            Disposition.PLACED, "started", "R9", may_exist=True, pod_name=f"process-{process.pid}", pod_uid=uid
        )

    def _reap_later(self, process: asyncio.subprocess.Process) -> None:
        async def reap() -> None:
            await process.wait()

        task = asyncio.create_task(reap())
        self._agents.add(task)
        task.add_done_callback(self._agents.discard)


def _rejected(error: Exception) -> Verdict:
    return Verdict(Disposition.REJECTED, f"cannot start: {type(error).__name__}", "R3", detail=str(error))
