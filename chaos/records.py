"""Everything that a run left behind, typed and indexed, for the judge and for the report.

    records = Records.load(run_dir)
    records.run, records.phases, records.faults, records.end
    lane = records.lanes["buffered"]
    lane.submissions, lane.creates[row], lane.executions[row], lane.reports[row]     evidence
    lane.claims[row], lane.rows[row]                                                 the dispatcher's claims
    lane.answers(row), records.healed_at(fault, "buffered")                          what follows from them

All times are seconds on the run clock. Files are streamed; a run with 100,000 tasks a lane fits into memory.
Nothing here decides whether anything was right: that is the checkers' business.
"""

import csv
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos import audit, ledger
from chaos.audit import Answer, Create
from chaos.events import CreateClaim, Fault, FaultClass, Phase, Probe, Report, RowClaim, Sample, Submission
from chaos.history_reader import HistoryReader
from chaos.jsonl import Damage
from chaos.ledger import Execution
from chaos.run_json import LaneInfo, Run

__all__ = ["Answered", "Lane", "LaneInfo", "Records", "Run"]

TAKES_AWAY = (FaultClass.OUTAGE, FaultClass.ANSWER_LOST, FaultClass.DISPATCHER, FaultClass.DATABASE)
"""Classes of faults under which a due row is not answered, or does not hear it."""
WITNESSES = ("history", "ledger", "audit")
HEALING = ("heal", "confirm_healed")


@dataclass(slots=True, frozen=True)
class Answered:
    """An offer of a row that was answered: the API took it, put it off, or refused it (R1 to R3)."""

    t: float
    answer: Answer
    create: Create
    by_running: bool = False
    """The answer itself was lost, but the pod's RUNNING was accepted: the row had left the outage all the same."""


@dataclass(slots=True)
class Lane:
    """One dispatcher system: what the witnesses saw of it, and what it says of itself, by row id."""

    info: LaneInfo
    submissions: dict[str, Submission] = field(default_factory=dict)
    by_row: dict[int, Submission] = field(default_factory=dict)
    creates: dict[int, list[Create]] = field(default_factory=lambda: defaultdict(list))
    executions: dict[int, list[Execution]] = field(default_factory=lambda: defaultdict(list))
    reports: dict[int, list[Report]] = field(default_factory=lambda: defaultdict(list))
    claims: dict[int, list[CreateClaim]] = field(default_factory=lambda: defaultdict(list))
    rows: dict[int, RowClaim] = field(default_factory=dict)
    clears: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When an operator cleared a row: a new episode that may run it again."""
    lost_answers: list[tuple[float, float]] = field(default_factory=list)
    """Spans in which an answer-lost fault may have been at work."""

    @property
    def name(self) -> str:
        return self.info.name

    def claim_of(self, create: Create) -> CreateClaim | None:
        """What the dispatcher says became of this create, if it says anything."""
        return next((claim for claim in self.claims.get(create.row, ()) if claim.epoch == create.epoch), None)

    def answers(self, row: int) -> list[Answered]:
        """The row's answered offers in order of time.

        Evidence is the audit log: a create that was answered with anything but Unavailable. But the audit log knows
        what the apiserver *said*, not what the client *heard*, and R1 counts an answer that was lost as Unavailable.
        So such a create does not count as answered where the dispatcher itself says that it was Unavailable (a claim
        against its own interest, since it makes the recovery later), nor where an answer-lost fault was at work and
        nobody says that the answer arrived. If its pod's RUNNING was accepted, the row is answered from then on.
        """
        found = []
        for create in self.creates.get(row, ()):
            if create.answer is Answer.UNAVAILABLE:
                continue
            claim = self.claim_of(create)
            if self._heard(create, claim):
                found.append(Answered(create.ended, create.answer, create))
            elif create.committed:
                running = (r for r in self.reports.get(row, ()) if r.what == "running" and r.epoch == create.epoch)
                accepted = next((r.accepted for r in running if r.accepted is not None), None)
                if accepted is not None:
                    found.append(Answered(accepted, create.answer, create, by_running=True))
        return sorted(found, key=lambda answered: answered.t)

    def _heard(self, create: Create, claim: CreateClaim | None) -> bool:
        if claim is None:
            return not any(begin <= create.ended and create.started <= end for begin, end in self.lost_answers)
        if claim.disposition == "Unavailable":
            return False
        # Under attempts-only an Unavailable is settled, and may be logged, as Rejected: a 201 was then not heard.
        return create.answer is not Answer.PLACED or claim.disposition == "Placed"

    def unavailable_at(self, row: int) -> list[float]:
        """When offers of the row ended Unavailable: the apiserver said so, or the dispatcher says so of itself.

        A claim whose settlement found no row is left out: its pod had won the race, and the row was not held.
        """
        said = [create.ended for create in self.creates.get(row, ()) if create.answer is Answer.UNAVAILABLE]
        own = [c.ended for c in self.claims.get(row, ()) if c.disposition == "Unavailable" and c.settled]
        return sorted(said + own)

    def placed_at(self, row: int) -> float | None:
        """When the row's first create was accepted, and heard to be so."""
        return next((a.t for a in self.answers(row) if a.answer is Answer.PLACED), None)

    def all_creates(self) -> Iterator[Create]:
        for creates in self.creates.values():
            yield from creates

    def all_claims(self) -> Iterator[CreateClaim]:
        for claims in self.claims.values():
            yield from claims

    def all_reports(self) -> Iterator[Report]:
        for reports in self.reports.values():
            yield from reports

    def due_between(self, begin: float, end: float) -> list[Submission]:
        """Accepted submissions that were due in [begin, end)."""
        return [one for one in self.by_row.values() if begin <= one.due < end]


@dataclass(slots=True)
class Records:
    """One run. `damage` says, for each witness, what of its file could not be read."""

    directory: Path
    run: Run
    phases: list[Phase]
    faults: list[Fault]
    probes: list[Probe]
    lanes: dict[str, Lane]
    damage: dict[str, Damage]
    end: float
    """The last moment that any witness speaks of."""
    leader_terms: list[dict[str, Any]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    """Steps of the run that failed their own test, in the suite's words (op "trouble")."""
    unmatched_ends: list[ledger.Line] = field(default_factory=list)
    """Ends in the ledger whose start is not there."""

    @classmethod
    def load(cls, directory: Path | str) -> "Records":
        """Read a run's directory. Missing or damaged witnesses are told in `damage`, not raised.

        Raises ChaosError where run.json does not say what was run.
        """
        directory = Path(directory)
        run = Run.read(directory / "run.json")
        damage = {witness: Damage() for witness in WITNESSES}
        lanes = {name: Lane(info) for name, info in run.lanes.items()}
        history = HistoryReader.read(directory / "history.jsonl", damage["history"])
        book = ledger.read(directory / "ledger.jsonl", run.started_mono, damage["ledger"])
        end = history.end
        for execution in book.executions:
            end = max(end, execution.started, execution.over or 0.0)
            if execution.lane in lanes:
                lanes[execution.lane].executions[execution.row].append(execution)
        namespaces = {info.namespace: name for name, info in run.lanes.items()}
        for create in audit.read(directory / "audit.jsonl", run.started_wall, namespaces, damage["audit"]):
            end = max(end, create.ended)
            lanes[create.lane].creates[create.row].append(create)
        for lane in lanes.values():
            history.fill(lane)
            _order(lane)
        return cls(
            directory=directory,
            run=run,
            phases=history.phases,
            faults=history.faults,
            probes=history.probes,
            lanes=lanes,
            damage=damage,
            end=end,
            leader_terms=history.leader_terms,
            trouble=history.trouble,
            unmatched_ends=book.unmatched_ends,
        )

    def faults_of(self, lane: str, *kinds: FaultClass) -> list[Fault]:
        """The faults that were aimed at a lane, of the given classes (all, if none is given), by injection."""
        return [fault for fault in self.faults if fault.hits(lane) and (not kinds or fault.kind in kinds)]

    def episodes(self, lane: str, *kinds: FaultClass) -> list[Fault]:
        """The same, but faults that took over from each other without a gap are one: each was injected before the one
        before it was healed. It is named after all of them, begins with the first and is over with the last."""
        found: list[Fault] = []
        for fault in self.faults_of(lane, *kinds):
            last = found[-1] if found else None
            if last is not None and last.kind is fault.kind and _takes_over(last, fault):
                found[-1] = replace(
                    last,
                    name=f"{last.name}, {fault.name}",
                    heal_began=fault.heal_began,
                    healed_at=fault.healed_at,
                    failures=[*last.failures, *fault.failures],
                    evidence={**last.evidence, **{step: fault.evidence.get(step, {}) for step in HEALING}},
                )
            else:
                found.append(fault)
        return found

    def healed_at(self, fault: Fault, lane: str) -> float | None:
        """The first real create of the probe in the lane's namespace that was asked for after the heal began and
        accepted. None where no such create is on record: then nothing shows that the API was back for this lane."""
        if fault.heal_began is None:
            return None
        told = fault.evidence.get("confirm_healed", {}).get("lanes", {}).get(lane)
        for probe in self._probes_from(fault.heal_began):
            if probe.lane == lane and probe.accepted and probe.started >= fault.heal_began:
                # The event is written after the probe has cleaned up; the suite noted when the answer was there.
                return told if told is not None and probe.started <= told <= probe.t else probe.t
        return None

    def over_at(self, fault: Fault, lane: str) -> float | None:
        """When a fault was over for a lane: for what takes the API away the probe's word, for what befalls dispatchers,
        their database or their agents the suite's, which looked at them."""
        if fault.kind not in (FaultClass.DISPATCHER, FaultClass.DATABASE, FaultClass.NODE):
            return self.healed_at(fault, lane)
        told = fault.evidence.get("confirm_healed", {}).get("lanes", {}).get(lane)
        return float(told) if told is not None and fault.healed_at is not None else fault.healed_at

    def back_at(self, fault: Fault, lane: str) -> float | None:
        """When nothing stood between the lane's rows and the API any more: this fault was over, and each that was still
        at work then. From there on a recovery is counted."""
        back = self.over_at(fault, lane)
        others = [(other.active()[0], self.over_at(other, lane)) for other in self.faults_of(lane, *TAKES_AWAY)]
        while back is not None:
            later = [over for begin, over in others if begin <= back and (over is None or over > back)]
            if not later:
                return back
            back = None if None in later else max(over for over in later if over is not None)
        return None

    def last_refused_before(self, moment: float, lane: str) -> float | None:
        """The last create of the probe before `moment` that was not accepted: how sharp the moment is."""
        return max((p.t for p in self.probes if p.lane == lane and not p.accepted and p.t < moment), default=None)

    def _probes_from(self, moment: float) -> Iterator[Probe]:
        yield from self.probes[bisect_left(self.probes, moment, key=lambda probe: probe.t) :]

    def phase(self, name: str) -> Phase | None:
        """The last phase of that name, or None if the run never came to it."""
        return next((phase for phase in reversed(self.phases) if phase.name == name), None)

    @property
    def drained(self) -> bool:
        """The run came as far as its drain, so that what has not ended by the end of the records did not end. (The
        records of a run that was broken off are collected too.)"""
        return self.phase("drain") is not None

    def samples(self) -> list[Sample]:
        """samples.csv; empty where there is none. Cells that are no numbers are left out."""
        path = self.directory / "samples.csv"
        if not path.exists():
            return []
        with path.open(newline="", encoding="utf-8") as file:
            return [sample for line in csv.DictReader(file) if (sample := _sample(line)) is not None]


def _takes_over(earlier: Fault, later: Fault) -> bool:
    if earlier.heal_began is None or later.inject_began is None:
        return False
    return later.inject_began <= earlier.heal_began


def _order(lane: Lane) -> None:
    for creates in lane.creates.values():
        creates.sort(key=lambda create: create.started)
    for executions in lane.executions.values():
        executions.sort(key=lambda execution: execution.started)
    for claims in lane.claims.values():
        claims.sort(key=lambda claim: (claim.epoch, claim.started))
    for reports in lane.reports.values():
        reports.sort(key=lambda report: report.sent)


def _sample(line: dict[str, Any]) -> Sample | None:
    numbers: dict[str, float] = {}
    for name, text in line.items():
        try:
            numbers[name] = float(text)
        except (TypeError, ValueError):
            continue
    at = numbers.pop("t", None)
    return None if at is None else Sample(at, line.get("lane") or "", numbers)
