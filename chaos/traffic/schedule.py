"""What is due when, drawn from the seed before anything starts.

A schedule has segments ("warm-up", "outage", ...). Their entries have times relative to the segment's start, because
the run decides when a segment starts: an outage begins when it is confirmed, not when it was planned. All lanes are
given the same entries, so that lanes can be compared. The seed replays this *schedule*; how processes interleave
may differ from run to run.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Steady:
    """A task every 1/rate seconds on average, one in each such slot at a drawn place of it. `rate` is tasks a second
    and lane, `length_s` how long it can go on at most (the run ends a segment when it has seen enough)."""

    rate: float
    length_s: float


@dataclass(frozen=True, slots=True)
class Burst:
    """`count` tasks a lane, due within `within_s` seconds from `after_s` after the segment's start.

    `labels` are put on their pods, `expect` says how they should end (`events.Submission.expect`): a fault may single
    them out.
    """

    count: int
    within_s: float
    after_s: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)
    expect: str = "success"


@dataclass(frozen=True, slots=True)
class Segment:
    """A named stretch of load, as a scenario writes it down. `work_s` bounds how long a task's user code runs."""

    name: str
    parts: tuple[Steady | Burst, ...]
    work_s: tuple[float, float] = (1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Entry:
    """One task: due `offset_s` after its segment's start, with `retries` of the user's, running for `work_s`; its pods
    carry `labels`, and it should end as `expect` says."""

    key: str
    offset_s: float
    retries: int
    work_s: float
    labels: dict[str, str] = field(default_factory=dict)
    expect: str = "success"


@dataclass(frozen=True, slots=True)
class Schedule:
    """All entries by segment, and how long before it is due a task is submitted (`lead_s`, seconds)."""

    seed: int
    lead_s: float
    segments: dict[str, list[Entry]]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        raw = json.loads(path.read_text(encoding="utf-8"))
        segments = {name: [Entry(**entry) for entry in entries] for name, entries in raw["segments"].items()}
        return cls(raw["seed"], raw["lead_s"], segments)


def draw(seed: int, segments: Sequence[Segment], *, lead_s: float, retried_share: float = 0.1) -> Schedule:
    """Draw a schedule; the same arguments give the same one. `retried_share` of the tasks has 2 retries.

    The share is kept by count rather than by chance, so that no seed leaves a lane without a retried task; and within
    each group of tasks that should end alike, so that some of those that are to be refused have retries too (R7).
    """
    source = random.Random(seed)
    drawn: dict[str, list[Entry]] = {}
    for segment in segments:
        due = [(offset, part) for part in segment.parts for offset in _offsets(source, part)]
        due.sort(key=lambda one: one[0])
        groups: dict[str, list[int]] = {}
        for number, (_, part) in enumerate(due):
            groups.setdefault(_marks(part)[1], []).append(number)
        retried = {
            number for group in groups.values() for number in source.sample(group, round(len(group) * retried_share))
        }
        drawn[segment.name] = [
            Entry(
                f"{segment.name}-{number:04d}",
                round(offset, 3),
                2 if number in retried else 0,
                round(source.uniform(*segment.work_s), 3),
                *_marks(part),
            )
            for number, (offset, part) in enumerate(due)
        ]
    return Schedule(seed, lead_s, drawn)


def _marks(part: Steady | Burst) -> tuple[dict[str, str], str]:
    """The labels of a part's tasks, and how they should end."""
    return (part.labels, part.expect) if isinstance(part, Burst) else ({}, "success")


def _offsets(source: random.Random, part: Steady | Burst) -> list[float]:
    if isinstance(part, Burst):
        return [part.after_s + source.uniform(0, part.within_s) for _ in range(part.count)]
    return [(number + source.random()) / part.rate for number in range(round(part.rate * part.length_s))]
