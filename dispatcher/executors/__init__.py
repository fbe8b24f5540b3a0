"""Executors turn one claimed attempt into something that runs, and say what came of it.

An executor never raises for what the outside does: every outcome is a value (R3).
"""

from dataclasses import dataclass
from typing import Any, Protocol

from dispatcher.rules import Outcome


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


class Executor(Protocol):
    async def create(self, attempt: Attempt) -> Outcome:
        """Make one attempt run. Returns within the create deadline, whatever happens outside (R1, R9)."""
        ...

    async def close(self) -> None: ...
