"""The real executor, driven from a test."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml

from dispatcher.executors import Attempt
from dispatcher.executors.kubernetes import KubernetesExecutor
from dispatcher.executors.limiter import RateLimiter
from dispatcher.rules import Outcome

ATTEMPT = Attempt(
    row_id=7,
    epoch=3,
    try_number=1,
    run_name="nightly",
    task_key="load",
    namespace="tasks",
    spec={"image": "busybox", "command": ["true"], "env": {"COLOUR": "red"}},
)
T = TypeVar("T")


class WallClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


def write_kubeconfig(path: Path, server: str, ca: Path, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
    """A kubeconfig as people have them, certificates by file."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(ca), **cluster}}],
        "users": [{"name": "test", "user": {"token": "a-token"} if user is None else user}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


@dataclass
class Client:
    """One event loop and one executor on it. `create` runs one create to its end."""

    kubeconfig: Path | None
    deadline_s: float = 5.0
    limiter: RateLimiter = field(default_factory=lambda: RateLimiter(0, 1, 0))
    connections: int = 8
    _used: bool = False

    def __enter__(self) -> "Client":
        self._runner = asyncio.Runner()
        self.executor = self._executor()
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self.executor.close())
        self._runner.run(asyncio.sleep(0.02))  # closed transports let go of their sockets in the loop's next turns
        self._runner.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def create(self, attempt: Attempt = ATTEMPT) -> Outcome:
        return self.timed(attempt)[0]

    def timed(self, attempt: Attempt = ATTEMPT) -> tuple[Outcome, float]:
        """An outcome and how many seconds it took."""

        async def measured() -> tuple[Outcome, float]:
            if self._used:
                # The loop stood still since the last create: let it see first which idle connections were closed.
                await asyncio.sleep(0.02)
            self._used = True
            began = time.monotonic()
            return await self.executor.create(attempt), time.monotonic() - began

        return self.run(measured())

    def _executor(self) -> KubernetesExecutor:
        return KubernetesExecutor(
            clock=WallClock(),
            sign=lambda row, epoch: f"token-{row}-{epoch}",
            kubeconfig=self.kubeconfig,
            agent_command=["python3", "/opt/rideout/agent.py"],
            dispatchers=["http://127.0.0.1:8080"],
            deadline_s=self.deadline_s,
            limiter=self.limiter,
            connections=self.connections,
        )
