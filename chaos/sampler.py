"""Samples of the running system, for pictures and for the display: samples.csv.

What the dispatchers say of themselves is a claim, and no checker reads it. The API's availability comes from the
independent probe; the webhook is asked directly, through the same proxy as the apiserver.
"""

import asyncio
import csv
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from chaos.errors import ChaosError
from chaos.lanes import Lane, Row
from chaos.probe import Probe

COLUMNS = (
    "t",
    "lane",
    "scheduled",
    "queued",
    "running",
    "success",
    "failed",
    "holding",
    "oldest_due_age_s",
    "api_new",
    "api_reused",
    "webhook",
    "leader_term",
)
ENDED = ("success", "failed")


@dataclass(frozen=True, slots=True)
class Figures:
    """One lane at one moment: rows by state, rows whose pod the API took, rows that ride out an outage, the oldest
    row that is due and has no pod (seconds overdue), and the leader's term."""

    states: Counter[str]
    placed: int
    holding: int
    oldest_due_age_s: float
    leader_term: int

    @property
    def unfinished(self) -> int:
        return sum(count for state, count in self.states.items() if state not in ENDED)


def figures_of(rows: list[Row], wall: float, leader_term: int) -> Figures:
    """Figures of a lane's rows at unix time `wall`. A row that was claimed but has no pod yet still waits."""
    waiting = [row for row in rows if row["state"] == "scheduled" or (row["state"] == "queued" and not row["pod_uid"])]
    refused = [row for row in rows if row["state"] == "failed" and (row["reason"] or "").startswith("dispatch_failed")]
    return Figures(
        states=Counter(row["state"] for row in rows),
        placed=len(rows) - len(waiting) - len(refused),
        holding=sum(1 for row in waiting if row["dispatch_unavailable_since"]),
        oldest_due_age_s=max([0.0, *(wall - unix(row["due_at"]) for row in waiting)]),
        leader_term=leader_term,
    )


def unix(stamp: str | float | None) -> float:
    """Unix seconds of an RFC 3339 time; a number passes through, None is zero."""
    if stamp is None or isinstance(stamp, int | float):
        return float(stamp or 0)
    return datetime.fromisoformat(stamp).timestamp()


@dataclass
class Sampler:
    """Takes a sample of every lane each `interval_s`; `last` holds the newest of each lane."""

    lanes: Mapping[str, Lane]
    probe: Probe
    webhook_up: Callable[[], Any]
    now: Callable[[], float]
    interval_s: float
    path: Path
    last: dict[str, Figures] = field(default_factory=dict)
    listeners: list[Callable[[dict[str, Figures]], None]] = field(default_factory=list)

    @asynccontextmanager
    async def sampling(self) -> AsyncIterator["Sampler"]:
        """Sample in the background until the block is left."""
        with self.path.open("w", newline="", encoding="utf-8", buffering=1) as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            task = asyncio.create_task(self._run(writer))
            try:
                yield self
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _run(self, writer: Any) -> None:
        while True:
            begun = time.monotonic()
            await self.take(writer)
            await asyncio.sleep(max(0.05, self.interval_s - (time.monotonic() - begun)))

    async def take(self, writer: Any | None = None) -> dict[str, Figures]:
        """One sample of all lanes now. A lane that does not answer has none; its line is left out."""
        answers = await asyncio.gather(*(self._figures(lane) for lane in self.lanes.values()))
        webhook = int(bool(await self.webhook_up()))
        for name, figures in zip(self.lanes, answers, strict=True):
            if figures is None:
                continue
            self.last[name] = figures
            if writer is not None:
                writer.writerow(self._line(name, figures, webhook))
        for listener in self.listeners:
            listener(self.last)
        return self.last

    async def _figures(self, lane: Lane) -> Figures | None:
        try:
            rows, metrics = await asyncio.gather(lane.rows(), lane.metrics())
        except ChaosError:
            return None
        terms = [int(value) for name, _, value in metrics if name == "rideout_leader_term"]
        return figures_of(rows, time.time(), max(terms, default=0))

    def _line(self, lane: str, figures: Figures, webhook: int) -> list[Any]:
        states = [figures.states[s] for s in ("scheduled", "queued", "running", "success", "failed")]
        api = [int(bool(self.probe.accepting(lane, connection))) for connection in ("new", "reused")]
        age = round(figures.oldest_due_age_s, 3)
        return [round(self.now(), 3), lane, *states, figures.holding, age, *api, webhook, figures.leader_term]
