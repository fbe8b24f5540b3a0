"""A simulated operating-system process: its tasks can be frozen (SIGSTOP) or dropped (SIGKILL) at any await.

Every task that a dispatcher starts inherits PROCESS from the task that started it. What a process does to the
outside goes through three doors: a transaction, a create, an answer to an agent. A trap stands at one of them, or
at a seam of the main path, and springs the n-th time it is passed.
"""

import asyncio
import contextvars
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dispatcher.seams import Seam


class Killed(BaseException):
    """Raised inside a killed process. No `except Exception` survives a SIGKILL."""


class Point(StrEnum):
    """Where a trap may stand; the seams are the product's own names."""

    BEFORE_TRANSACTION = "before-transaction"
    BEFORE_COMMIT = "before-commit"
    AFTER_COMMIT = "after-commit"
    BEFORE_POST = "before-post"
    BEFORE_ANSWER = "before-answer"
    AFTER_CLAIM = Seam.AFTER_CLAIM.value
    AFTER_CREATE = Seam.AFTER_CREATE.value
    BEFORE_SETTLE = Seam.BEFORE_SETTLE.value
    IN_SETTLE = Seam.IN_SETTLE.value
    IN_RE_OFFER = Seam.IN_RE_OFFER.value


class Does(StrEnum):
    KILL = "kill"
    FREEZE = "freeze"
    """Only where no transaction is open: a frozen process would hold its locks for as long as it is frozen."""
    ERROR = "error"
    """The database's connection breaks; only at the doors of a transaction."""


@dataclass(slots=True)
class Trap:
    point: Point
    does: Does
    after: int = 0
    """How often the point is passed unharmed before."""


PROCESS: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)


class Process:
    """One run of one replica, from its start to its death."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self._loop = loop
        self._awake = asyncio.Event()
        self._awake.set()
        self.dead = False
        self.in_transaction = False
        self._doomed = False
        self.traps: list[Trap] = []
        self.wall_step_s = 0.0
        """How far somebody has set this machine's wall clock; nothing may depend on it (R23)."""
        self.tasks: set[asyncio.Task[Any]] = set()
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    @property
    def frozen(self) -> bool:
        return not self._awake.is_set()

    @property
    def healthy(self) -> bool:
        return not self.dead and not self.frozen

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return self._loop.create_task(work, name=name, context=self.context)

    def freeze(self) -> None:
        self._awake.clear()

    def thaw(self) -> None:
        self._awake.set()

    async def awake(self) -> None:
        """Wait while frozen. A deadline that passes meanwhile is noticed when the process runs again, not before."""
        cancelled: asyncio.CancelledError | None = None
        while self.frozen and not self.dead:
            try:
                await self._awake.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        if self.dead:
            raise Killed
        if cancelled is not None:
            raise cancelled

    def kill(self) -> None:
        """SIGKILL: nothing that runs here has any effect from now on."""
        self.dead = True
        self._awake.set()
        for task in list(self.tasks):
            task.cancel()

    def leave_transaction(self) -> None:
        self.in_transaction = False
        if self._doomed:
            self.kill()

    def springs(self, point: Point) -> Does | None:
        """Pass a point; what its trap does, if one springs. Raises Killed.

        A process that dies inside its transaction is dropped when PostgreSQL has taken the transaction back.
        """
        if self.dead or self._doomed:
            raise Killed
        for trap in self.traps:
            if trap.point is not point:
                continue
            if trap.after > 0:
                trap.after -= 1
                continue
            self.traps.remove(trap)
            if trap.does is Does.KILL:
                self._doomed = True
                if not self.in_transaction:
                    self.kill()
                raise Killed
            if trap.does is Does.FREEZE:
                self.freeze()
            return trap.does
        return None


def reach(seam: Seam) -> None:
    """Stands in for `dispatcher.seams.reach`: a seam is a point where the process may be killed."""
    process = PROCESS.get()
    if process is not None:
        process.springs(Point(seam.value))


def task_factory(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> "asyncio.Task[Any]":
    """Notes each task with the process that it belongs to."""
    context: contextvars.Context | None = options.get("context")
    process = context.get(PROCESS) if context is not None else PROCESS.get()
    if process is not None and process.dead:
        work.close()
        raise Killed
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard)
    return task


def killed_tasks_are_no_news(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)


def wall_seconds() -> float:
    """The wall clock of the machine that the running process is on: the local clock, and whatever was set since."""
    process = PROCESS.get()
    return asyncio.get_event_loop().time() + (process.wall_step_s if process is not None else 0.0)
