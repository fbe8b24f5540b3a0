"""What every simulated thing stands on: the virtual clock, the schedule's randomness, and the notes of the witnesses.

The witnesses are the judge's evidence: the API notes creates, the network notes reports and their answers, the node
notes executions. None of them knows what a dispatcher believes.
"""

import asyncio
import contextvars
import zlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.simulation.faults import Fault
from tests.simulation.virtual_time import VirtualLoop

ORIGIN = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
"""When every schedule begins, on the database's clock."""
INSTANT_S = 1e-6
"""What happens within it happens at once: it is PostgreSQL's own resolution of time."""


@dataclass(slots=True)
class Creation:
    """One create request, as the API's front door saw it."""

    process: str
    row: int
    epoch: int
    try_number: int
    pod_name: str
    called_at: float
    fault: Fault | None = None
    uid: str = ""
    committed_at: float | None = None
    returned_at: float | None = None
    """When the client had its answer, or gave up; None: under way, or its process died."""
    gave_up: bool = False
    counted: bool = False
    """The model has noted what it says about the API."""

    @property
    def disposition(self) -> str:
        assert self.fault is not None
        return "unavailable" if self.gave_up else self.fault.disposition


@dataclass(slots=True)
class Report:
    """One report that reached a replica."""

    at: float
    what: str
    row: int
    epoch: int
    pod_uid: str
    nonce: str
    outcome: str | None
    status: int | None = None
    refused: bool = False
    body: str = ""


@dataclass(slots=True)
class Execution:
    """User code that ran: the node's own record."""

    row: int
    try_number: int
    epoch: int
    pod_uid: str
    nonce: str
    start: float
    end: float | None = None
    outcome: str = ""
    """success, failure, reschedule; or killed, by whom is in `why`."""
    why: str = ""


@dataclass(slots=True)
class Listing:
    """One complete pod list that the API served: of each pod, whether it can still report (R20)."""

    at: float
    silent: dict[str, bool]


@dataclass(slots=True)
class Notes:
    creations: list[Creation] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    listings: list[Listing] = field(default_factory=list)
    deletions: list[tuple[str, bool]] = field(default_factory=list)
    """Pods that the dispatcher has deleted: their uid, and whether they had finished."""
    accepted: set[str] = field(default_factory=set)
    """Nonces whose RUNNING was answered with `run`, and that answer reached the agent."""
    refused: set[str] = field(default_factory=set)
    excuses: list[tuple[float, str, str]] = field(default_factory=list)
    """When which fault may have cost whose lease: time, pod uid or '' for everybody, name."""
    bugs: list[str] = field(default_factory=list)
    raised: list[BaseException] = field(default_factory=list)
    """What the simulation's own tasks raised: a violation that was seen there, or a fault of the simulation."""
    story: list[str] = field(default_factory=list)
    """What happened, in words, for whoever reads a failure."""


class Ground:
    """Virtual time, seeded chances, timers and tasks that belong to no process."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.seed = seed
        self.notes = Notes()
        self.began = loop.time()
        self._draws = 0
        self.wall_step_s = 0.0
        """How far somebody has set the machines' wall clocks since the schedule began."""
        self._outside = contextvars.copy_context()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def now(self) -> float:
        """Virtual seconds since the schedule began."""
        return self.loop.time() - self.began

    @property
    def wall(self) -> datetime:
        """The database's clock."""
        return ORIGIN + timedelta(seconds=self.now)

    def chance(self, *key: object) -> float:
        """0 to 1, the same for the same seed and key, whatever came before."""
        return zlib.crc32(f"{self.seed}:{key}".encode()) / 2**32

    def draw(self) -> float:
        self._draws += 1
        return self.chance("draw", self._draws)

    def later(self, seconds: float, then: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        timer = self.loop.call_later(seconds, then, *arguments, context=self._outside)
        self._timers.append(timer)
        return timer

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work, context=self._outside.copy())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def tell(self, what: str) -> None:
        self.notes.story.append(f"{self.now:10.3f}  {what}")

    async def end(self) -> None:
        """Stop whatever still runs."""
        for timer in self._timers:
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.notes.raised.append(error)
