"""From a run's records to what the plots and sentences show. Pure: no files, no colours, no HTML.

All times are seconds on the run clock.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chaos.events import Fault, FaultClass
from chaos.records import Lane, Records
from chaos.report.rows import Outcome, RowFacts, facts_of
from chaos.report.series import Bins, LatencyPoint, Span, latency_points, oldest_due_age

STARTUP_S = 10.0
"""How long after the API's return a 403 is put down to the start of the apiserver, as the checkers have it."""


@dataclass(slots=True, frozen=True)
class Band:
    """A fault as a shaded band: from its injection to its confirmed end; `fired_at` is when it was seen to bite."""

    letter: str
    fault: Fault
    begin: float
    end: float
    fired_at: float | None
    healed: bool


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
    outcomes: dict[Outcome, int]
    """How many rows came to which outcome."""
    latency: dict[Outcome, list[LatencyPoint]]
    causes: dict[str, list[int]]
    """CLAIM: offers that were not placed, by cause."""
    startup_403s: list[float]
    other_403s: list[float]
    due_in_outage: int
    failed: int
    """CLAIM: rows that ended as failed and should not have."""
    failed_as_expected: int
    """CLAIM: rows that ended as failed and should: they were denied on purpose, or their code fails."""

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
        fired_at = fault.fired_at if fault.fired_at is not None and fault.fired_at <= end else None
        bands.append(Band(_letter(number), fault, begin, end, fired_at, fault.healed_at is not None))
    return bands


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def main_outage(records: Records) -> Fault | None:
    """The longest outage among those that were seen to fire; faults that take over from each other are one."""
    outages = [
        fault
        for lane in records.lanes
        for fault in records.episodes(lane, FaultClass.OUTAGE)
        if fault.fired_at is not None
    ]

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
    failed = {row for row, claim in lane.rows.items() if claim.state == "failed"}
    should = {row for row, one in lane.by_row.items() if one.expect not in ("success", "any")}
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
        outcomes=dict(sorted(Counter(one.outcome for one in facts.values()).items(), key=lambda item: -item[1])),
        latency=latency_points(facts.values(), bins),
        causes=bins.count_by((claim.cause or claim.disposition, claim.ended) for claim in unplaced),
        startup_403s=sorted(startup),
        other_403s=sorted(set(forbidden) - set(startup)),
        due_in_outage=len(lane.due_between(fired, until)) if fired is not None else 0,
        failed=len(failed - should),
        failed_as_expected=len(failed & should),
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


def offending_rows(offences: Iterable[tuple[str, int | None]]) -> Mapping[tuple[str, int], int]:
    """(lane, row) → its place among the offences."""
    found: dict[tuple[str, int], int] = {}
    for place, (lane, row) in enumerate(offences):
        if row is not None:
            found.setdefault((lane, row), place)
    return found
