"""A testbed that stands for several runs: started for the first, put back into its first state before each other.

Where that cannot be done another one is started, and so it is after a run that ended unknown (`end`): such a run may
have left something broken that nobody looks for.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from chaos.errors import ChaosError
from chaos.run import tell
from chaos.scenarios.base import THREE_LANES
from chaos.stage import Run, testbed_of, testbed_options
from chaos.testbed import Testbed
from chaos.testbed.bed import Options
from chaos.testbed.handover import hand_over


class Standing:
    """One testbed and the event loop it lives in. `tell` tells a run's story on it; it ends with the block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._bed: Testbed | None = None
        self._starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()
        self._runner.close()

    def tell(self, run: Run) -> None:
        """As `chaos.run.tell`. Raises what that raises."""
        self._runner.run(self._tell(run))

    def end(self) -> None:
        """End the testbed; the next run starts another."""
        self._bed = None
        self._runner.run(self._open.aclose())

    async def _tell(self, run: Run) -> None:
        await tell(run, await self._ready(run))

    async def _ready(self, run: Run) -> Testbed:
        lanes = [lane.name for lane in run.scenario.lanes]
        if self._bed is not None:
            run.progress.note("putting the testbed back into its first state")
            with suppress(ChaosError):
                await hand_over(self._bed, lanes, Options(**testbed_options(run)), run.directory.path / "logs")
                return self._bed
            run.progress.note("it does not come back into it; starting another")
            self._bed = None
            await self._open.aclose()
        self._starts += 1
        directory = self._directory / f"testbed-{self._starts}"
        first = await self._open.enter_async_context(testbed_of(run, directory, THREE_LANES))
        self._bed = first
        if lanes == list(first.namespaces):
            first.supervisor.logs = first.logs = run.directory.path / "logs"
        else:
            await hand_over(first, lanes, Options(**testbed_options(run)), run.directory.path / "logs")
        return first
