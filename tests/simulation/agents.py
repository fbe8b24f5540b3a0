"""The product's own agent, on a simulated machine.

`dispatcher.agent.Life` runs as it is, with its reports, leases and patience. What it stands on is ours: the clock,
the requests (`network`), the process group with its guard (`Code`), and what ends a wait (`Waker`). It is a blocking
program, so it runs in a greenlet, and each of its waits is a wait of the loop.
"""

import asyncio
import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy.util import await_only, greenlet_spawn

from dispatcher import agent
from tests.simulation.cluster import Pod
from tests.simulation.ground import Execution, Ground

RESCHEDULE_S = agent.RESCHEDULE
_CODES = {"success": 0, "reschedule": agent.RESCHEDULE, "failure": 3}


class Sends(Protocol):
    def send(
        self, process: "AgentProcess", request: "Request", url: str, path: str, token: str, body: bytes
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What a task's user code does: how long each execution takes, how each ends, what SIGTERM does to it."""

    takes_s: float = 30.0
    ends: tuple[str, ...] = ("success",)
    """One for each execution that is left alone; the last one repeats."""
    stops_after_s: float = 0.5
    """After a SIGTERM; infinity ignores it."""


class Request:
    """In the place of `agent.Request`: one POST, carried by the simulated network."""

    def __init__(self, url: str, path: str, token: str, body: bytes, done: "Waker") -> None:
        self.answered: tuple[int, str, bytes] | None = None
        self.error: str | None = None
        self.give_up_at = agent.clock() + agent.REQUEST_S
        self._waker = done
        process = done.process
        process.network.send(process, self, url, path, token, body)

    def answer(self, answered: tuple[int, str, bytes] | None, error: str | None) -> None:
        self.answered, self.error = answered, error
        self._waker()

    def over(self) -> bool:
        return self.answered is not None or self.error is not None or agent.clock() >= self.give_up_at

    def abandon(self) -> None: ...


class Waker:
    """In the place of `agent.Waker`."""

    def __init__(self, process: "AgentProcess") -> None:
        self.process = process
        self.stopping = False
        self._woken = asyncio.Event()

    def __call__(self) -> None:
        self._woken.set()

    def wait(self, until: float) -> None:
        await_only(self._wait(until))

    async def _wait(self, until: float) -> None:
        timer = None
        if until < math.inf:
            timer = asyncio.get_running_loop().call_at(until, self._woken.set)
        await self._woken.wait()
        if timer is not None:
            timer.cancel()
        self._woken.clear()
        await self.process.awake()


class Code:
    """In the place of `agent.Code`: the user's process group, and the guard that outlives a frozen agent."""

    def __init__(self, process: "AgentProcess") -> None:
        self._process = process
        self.guarded = True
        self.status: int | None = None
        self._execution: Execution | None = None
        self._guard: asyncio.TimerHandle | None = None

    def lease(self, kill_at: float) -> None:
        ground = self._process.ground
        if self._guard is not None:
            self._guard.cancel()
        self._guard = ground.later(max(0.0, kill_at - ground.loop.time()), self._guard_kills)

    def start(self) -> None:
        process = self._process
        ground, pod, plan = process.ground, process.pod, process.plan
        ended = sum(one.row == pod.row and one.why == "" and one.end is not None for one in ground.notes.executions)
        outcome = plan.ends[min(ended, len(plan.ends) - 1)]
        self._execution = Execution(pod.row, pod.try_number, pod.epoch, pod.uid, process.nonce, ground.now)
        ground.notes.executions.append(self._execution)
        ground.tell(f"row {pod.row}: user code starts, epoch {pod.epoch}, pod {pod.uid}")
        ground.later(plan.takes_s, self._ends, outcome, "", _CODES[outcome])

    def signal(self, number: int) -> None:
        ground, plan = self._process.ground, self._process.plan
        if number == signal.SIGKILL:
            self._ends("killed", "killed", 128 + signal.SIGKILL)
        elif plan.stops_after_s < math.inf:
            ground.later(plan.stops_after_s, self._ends, "killed", "terminated", 128 + signal.SIGTERM)

    def ended(self) -> bool:
        return self.status is not None

    def end(self, waker: Waker) -> int:
        if self._execution is None:
            self.status = 0
        self.signal(signal.SIGKILL)
        if self._guard is not None:
            self._guard.cancel()
        assert self.status is not None
        return self.status

    def dies_with_its_agent(self) -> None:
        self._ends("killed", "its agent was killed", 128 + signal.SIGKILL)

    def _guard_kills(self) -> None:
        self.guarded = False
        self._ends("killed", "the guard killed it", 128 + signal.SIGKILL)
        self._process.waker()

    def _ends(self, outcome: str, why: str, status: int) -> None:
        execution = self._execution
        if execution is None or execution.end is not None:
            return
        execution.end, execution.outcome, execution.why = self._process.ground.now, outcome, why
        self.status = status
        self._process.ground.tell(f"row {execution.row}: user code ends, {outcome} {why}".rstrip())
        self._process.waker()


class AgentProcess:
    """One process of the agent in a pod: it can be stopped, frozen and killed as any process."""

    def __init__(self, ground: Ground, network: Sends, pod: Pod, plan: Plan, ended: Any) -> None:
        self.ground, self.network, self.pod, self.plan = ground, network, pod, plan
        self.nonce = f"{pod.uid}/{len(pod.agents) + 1}"
        self.waker = Waker(self)
        self.code = Code(self)
        self.exit_code: int | None = None
        self._awake = asyncio.Event()
        self._awake.set()
        self._ended = ended
        self._task = ground.spawn(self._run())

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    @property
    def frozen(self) -> bool:
        return not self._awake.is_set()

    async def awake(self) -> None:
        await self._awake.wait()

    def stop(self) -> None:
        """SIGTERM, as a kubelet sends it."""
        self.waker.stopping = True
        self.waker()

    def freeze(self) -> None:
        self._awake.clear()

    def thaw(self) -> None:
        self._awake.set()
        self.waker()

    def kill(self) -> None:
        """SIGKILL of the agent; the guard takes its user code with it."""
        if self.alive:
            self._task.cancel()
            self.code.dies_with_its_agent()
            self._over(128 + signal.SIGKILL)

    async def _run(self) -> None:
        self._over(await greenlet_spawn(self._live))

    def _live(self) -> int:
        attempt = agent.Attempt(self.pod.environment(), ["--", "true"])
        attempt.nonce = self.nonce
        return agent.Life(attempt, self.waker, self.code).live()  # type: ignore[arg-type]

    def _over(self, code: int) -> None:
        if self.alive:
            self.exit_code = code
            self._ended(self.pod)


@contextmanager
def agents_are_simulated(ground: Ground) -> Iterator[None]:
    """Put the simulated machine under `dispatcher.agent`."""
    before = {name: getattr(agent, name) for name in ("clock", "Request", "event", "jitter")}
    agent.clock = ground.loop.time
    agent.Request = Request  # type: ignore[assignment,misc]
    agent.event = lambda *_, **__: None
    agent.jitter = ground.draw
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(agent, name, value)
