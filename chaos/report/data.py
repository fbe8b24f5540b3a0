"""From a run's records to the series behind the plots. Pure: no files, no colours, no HTML.

Everything is aggregated to a number of points that does not grow with the number of tasks, so that a run of 100,000
tasks makes a page that opens as fast as one of 300. All times are seconds on the run clock.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil

from chaos.events import Fault, FaultClass
from chaos.records import Lane, Records
from chaos.report.rows import Outcome, RowFacts, facts_of

BIN_WIDTHS = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
MOST_BINS = 120
AGE_POINTS = 500
MOST_CAUSES = 6
STARTUP_S = 10.0
"""How long after the API's return a 403 is put down to the start of the apiserver, as the checkers have it."""


@dataclass(slots=True, frozen=True)
class Span:
    """A stretch of the run clock."""

    begin: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.begin


@dataclass(slots=True, frozen=True)
class Band:
    """A fault as a shaded band: from its injection to its confirmed end."""

    letter: str
    fault: Fault
    begin: float
    end: float
    fired: bool
    healed: bool


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


@dataclass(slots=True)
class LaneData:
    """The series of one lane."""

    lane: Lane
    facts: dict[int, RowFacts]
    healed: float | None
    """When the API was back for this lane, after the main outage."""
    due: list[int]
    placed: list[int]
    began: list[int]
    refused: list[int]
    oldest: list[tuple[float, float]]
    """(t, how long the oldest row without an answer had been due)."""
    latency: dict[Outcome, list[LatencyPoint]]
    causes: dict[str, list[int]]
    """CLAIM: offers that were not placed, by cause."""
    startup_403s: list[float]
    other_403s: list[float]
    due_in_outage: int
    failed: int
    """CLAIM: rows that ended as failed."""

    @property
    def name(self) -> str:
        return self.lane.name

    @property
    def control(self) -> bool:
        return not self.lane.info.decides


@dataclass(slots=True)
class RunData:
    """Everything the plots and sentences of a report are made from."""

    records: Records
    span: Span
    bins: Bins
    bands: list[Band]
    outage: Fault | None
    """The longest outage that was seen to fire."""
    lanes: dict[str, LaneData]
    codes: dict[str, list[int]] = field(default_factory=dict)
    """EVIDENCE: answers in the audit log by code, over all lanes."""

    @property
    def deciding(self) -> list[LaneData]:
        return [lane for lane in self.lanes.values() if not lane.control]

    @property
    def controls(self) -> list[LaneData]:
        return [lane for lane in self.lanes.values() if lane.control]

    @property
    def outage_s(self) -> float | None:
        """How long the main outage held, from seen to bite until seen to be over."""
        if self.outage is None or self.outage.fired_at is None:
            return None
        ends = [lane.healed for lane in self.lanes.values() if lane.healed is not None]
        end = self.outage.healed_at or max(ends, default=None)
        return None if end is None else end - self.outage.fired_at

    @classmethod
    def of(cls, records: Records) -> "RunData":
        span = shown_span(records)
        bins, outage = Bins.over(span), main_outage(records)
        lanes = {name: _lane_data(records, lane, outage, span, bins) for name, lane in records.lanes.items()}
        creates = (create for lane in records.lanes.values() for create in lane.all_creates())
        codes = bins.count_by((f"{one.code} {one.reason}".strip(), one.ended) for one in creates)
        return cls(records, span, bins, bands_of(records), outage, lanes, codes)


def shown_span(records: Records) -> Span:
    """What the plots show: from the warm-up to the last moment anybody speaks of; setting up is left out."""
    warm_up, collect = records.phase("warm-up"), records.phase("collect")
    first = min((s.submitted_at for lane in records.lanes.values() for s in lane.submissions.values()), default=0.0)
    begin = min(first, warm_up.started) if warm_up is not None and first else first
    if warm_up is not None and not first:
        begin = warm_up.started
    end = collect.started if collect is not None else records.end
    return Span(max(0.0, begin), max(end, begin + 1.0))


def bands_of(records: Records) -> list[Band]:
    """Faults in order of their injection, lettered. One that was never confirmed to end lasts to the end."""
    bands = []
    for number, fault in enumerate(records.faults):
        begin = fault.inject_began if fault.inject_began is not None else fault.fired_at
        if begin is None:
            continue
        end = fault.healed_at if fault.healed_at is not None else max(records.end, begin)
        bands.append(Band(_letter(number), fault, begin, end, fault.fired_at is not None, fault.healed_at is not None))
    return bands


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def main_outage(records: Records) -> Fault | None:
    """The longest fault that kept the API from taking creates, among those that were seen to fire."""
    outages = [f for f in records.faults if f.kind is FaultClass.OUTAGE and f.fired_at is not None]

    def length(fault: Fault) -> float:
        begin, until = fault.biting()
        return min(until, records.end) - begin

    return max(outages, key=length, default=None)


def _lane_data(records: Records, lane: Lane, outage: Fault | None, span: Span, bins: Bins) -> LaneData:
    facts = facts_of(lane)
    healed = records.healed_at(outage, lane.name) if outage is not None else None
    if healed is None and outage is not None:
        healed = outage.healed_at
    claims = list(lane.all_claims())
    unplaced = [claim for claim in claims if claim.disposition.lower() != "placed"]
    forbidden = [create.ended for create in lane.all_creates() if create.forbidden]
    startup = [t for t in forbidden if _at_startup(records.faults, t, healed)]
    fired = outage.fired_at if outage is not None else None
    until = healed if healed is not None else records.end
    refused = [c.ended for c in unplaced] or [c.ended for c in lane.all_creates() if not c.committed]
    return LaneData(
        lane=lane,
        facts=facts,
        healed=healed,
        due=bins.count(one.due for one in facts.values()),
        placed=bins.count(one.placed for one in facts.values() if one.placed is not None),
        began=bins.count(e.started for executions in lane.executions.values() for e in executions),
        refused=bins.count(refused),
        oldest=oldest_due_age(facts.values(), span),
        latency=latency_points(facts.values(), bins),
        causes=bins.count_by((claim.cause or claim.disposition, claim.ended) for claim in unplaced),
        startup_403s=sorted(startup),
        other_403s=sorted(set(forbidden) - set(startup)),
        due_in_outage=len(lane.due_between(fired, until)) if fired is not None else 0,
        failed=sum(claim.state == "failed" for claim in lane.rows.values()),
    )


def _at_startup(faults: Iterable[Fault], t: float, healed: float | None) -> bool:
    """Whether a moment is within an apiserver's start after any outage: its RBAC rules are not all read yet."""
    for fault in faults:
        over = fault.healed_at if fault.healed_at is not None else healed
        if fault.kind is not FaultClass.OUTAGE or fault.heal_began is None or over is None:
            continue
        if fault.heal_began <= t <= max(over, healed or over) + STARTUP_S:
            return True
    return False


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


def offending_rows(offences: Iterable[tuple[str, int | None]]) -> Mapping[tuple[str, int], int]:
    """(lane, row) → its place among the offences."""
    found: dict[tuple[str, int], int] = {}
    for place, (lane, row) in enumerate(offences):
        if row is not None:
            found.setdefault((lane, row), place)
    return found
