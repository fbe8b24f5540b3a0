"""Executors turn one claimed attempt into something that runs, and say what came of it.

An executor never raises for what the outside does: every outcome is a value (R3).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dispatcher.clock import Now
from dispatcher.rules import Disposition, Outcome, Verdict


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an executor is told of a claim: the identity the fence is built on, and the task's spec."""

    row_id: int
    epoch: int
    try_number: int
    run_name: str
    task_key: str
    namespace: str
    spec: dict[str, Any]
    executor: str = "kubernetes"


class Executor(Protocol):
    async def create(self, attempt: Attempt) -> Outcome:
        """Make one attempt run. Returns within the create deadline, whatever happens outside (R1, R9)."""
        ...

    async def close(self) -> None: ...


class Executors:
    """Gives each attempt to the executor that its task names (R9)."""

    def __init__(self, clock: Now, by_name: Mapping[str, Executor]) -> None:
        self._clock = clock
        self._by_name = by_name

    async def create(self, attempt: Attempt) -> Outcome:
        executor = self._by_name.get(attempt.executor)
        if executor is not None:
            return await executor.create(attempt)
        now = self._clock.now()
        cause = f"no executor {attempt.executor!r} (there are: {', '.join(sorted(self._by_name))})"
        return Outcome(Verdict(Disposition.REJECTED, "no such executor", "R3", detail=cause), now, now)

    async def close(self) -> None:
        for executor in self._by_name.values():
            await executor.close()
