"""Series over the run clock, of a size that does not grow with the number of tasks.

A run of 100,000 tasks makes a page that opens as fast as one of 300. All times are seconds on the run clock.
"""

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from chaos.report.rows import Outcome, RowFacts

BIN_WIDTHS = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
MOST_BINS = 120
AGE_POINTS = 500
MOST_CAUSES = 6


@dataclass(slots=True, frozen=True)
class Span:
    """A stretch of the run clock."""

    begin: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.begin


@dataclass(slots=True, frozen=True)
class Bins:
    """Equal bins over a span."""

    begin: float
    width: float
    number: int

    @classmethod
    def over(cls, span: Span) -> "Bins":
        width = next((w for w in BIN_WIDTHS if span.length / w <= MOST_BINS), span.length / MOST_BINS)
        return cls(span.begin, width, max(1, ceil(span.length / width)))

    @property
    def starts(self) -> list[float]:
        return [round(self.begin + index * self.width, 3) for index in range(self.number)]

    def index(self, t: float) -> int | None:
        """The bin of a moment; None outside. The end of the last bin belongs to it."""
        at = int((t - self.begin) // self.width)
        return None if at < 0 or at > self.number else min(at, self.number - 1)

    def count(self, times: Iterable[float]) -> list[int]:
        counts = [0] * self.number
        for t in times:
            if (at := self.index(t)) is not None:
                counts[at] += 1
        return counts

    def count_by(self, events: Iterable[tuple[str, float]], most: int = MOST_CAUSES) -> dict[str, list[int]]:
        """Counts by name, the most frequent names first; what is beyond `most` names is put together as `other`."""
        pairs = [(name, at) for name, t in events if (at := self.index(t)) is not None]
        kept = [name for name, _ in Counter(name for name, _ in pairs).most_common(most)]
        counts: dict[str, list[int]] = {name: [0] * self.number for name in kept}
        for name, at in pairs:
            counts.setdefault(name if name in kept else "other", [0] * self.number)[at] += 1
        return counts


@dataclass(slots=True, frozen=True)
class LatencyPoint:
    """A task, or the slowest, the middle and the fastest of a bin that holds more than three (`stands_for`)."""

    due: float
    waited: float
    row: int
    stands_for: int = 1


def oldest_due_age(facts: Iterable[RowFacts], span: Span, points: int = AGE_POINTS) -> list[tuple[float, float]]:
    """How long the oldest row that waits for its first answer had been due, at equal steps over the span.

    From evidence where there is any (the answer); a row that the dispatcher says has failed waits no longer.
    """
    waiting = sorted((one.due, one.left if one.left is not None else float("inf")) for one in facts)
    series: list[tuple[float, float]] = []
    heap: list[tuple[float, float]] = []
    nearest = 0
    step = span.length / points
    for number in range(points + 1):
        t = span.begin + number * step
        while nearest < len(waiting) and waiting[nearest][0] <= t:
            heapq.heappush(heap, waiting[nearest])
            nearest += 1
        while heap and heap[0][1] <= t:
            heapq.heappop(heap)
        series.append((round(t, 3), round(t - heap[0][0], 3) if heap else 0.0))
    return series


def latency_points(facts: Iterable[RowFacts], bins: Bins) -> dict[Outcome, list[LatencyPoint]]:
    """Seconds from due to placed (to failed) by outcome; crowded bins keep their slowest, middle and fastest."""
    crowds: dict[tuple[Outcome, int], list[tuple[float, float, int]]] = {}
    for one in facts:
        at = bins.index(one.due)
        if one.waited is not None and at is not None:
            crowds.setdefault((one.outcome, at), []).append((one.waited, one.due, one.row))
    points: dict[Outcome, list[LatencyPoint]] = {outcome: [] for outcome in Outcome}
    crowded = sum(len(crowd) for crowd in crowds.values()) > 1500
    for (outcome, _), crowd in sorted(crowds.items(), key=lambda item: item[0][1]):
        crowd.sort()
        kept = crowd if not crowded or len(crowd) <= 3 else [crowd[0], crowd[len(crowd) // 2], crowd[-1]]
        points[outcome] += [LatencyPoint(due, waited, row, len(crowd) // len(kept)) for waited, due, row in kept]
    return {outcome: some for outcome, some in points.items() if some}
