"""Turns the history's lines into typed events, in one pass."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any, Self

from chaos import jsonl
from chaos.events import CreateClaim, Fault, FaultClass, Phase, Probe, Report, RowClaim, Submission, class_of

if TYPE_CHECKING:
    from chaos.records import Lane

Event = dict[str, Any]
MALFORMED = (KeyError, TypeError, ValueError, AttributeError)
OUTCOME_RANK = {"info": 0, "fail": 1, "ok": 2}
"""Which of several outcomes of one submission counts: an acceptance, then a refusal, then the unknown."""


class HistoryReader:
    """What a history says, by lane. `fill` hands a lane its share."""

    def __init__(self) -> None:
        self.end = 0.0
        self.phases: list[Phase] = []
        self.faults: list[Fault] = []
        self.probes: list[Probe] = []
        self.leader_terms: list[Event] = []
        self.trouble: list[str] = []
        self._submissions: dict[tuple[str, str], Submission] = {}
        self._reports: dict[tuple[str, int, int, str, str, str], Report] = {}
        self._last_of_pod: dict[str, Event] = {}
        self._claims: dict[str, list[CreateClaim]] = defaultdict(list)
        self._rows: dict[str, dict[int, RowClaim]] = defaultdict(dict)
        self._clears: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._readers: dict[str, Callable[[Event], None]] = {
            "phase": self._phase,
            "fault": self._fault,
            "probe": self._probe,
            "submit": self._submit,
            "agent": self._agent,
            "create": self._create_claim,
            "row": self._row_claim,
            "clear": self._clear,
            "leader_term": self.leader_terms.append,
            "trouble": lambda event: self.trouble.append(str(event["what"])),
        }

    @classmethod
    def read(cls, path: Path, damage: jsonl.Damage) -> Self:
        """Read a history in one pass. Ops that nobody here knows are passed over; a known op that lacks what it
        should hold counts as a damaged line."""
        reader = cls()
        for event in jsonl.read(path, damage):
            handle = reader._readers.get(event.get("op", ""))
            try:
                if handle is not None:
                    handle(event)
                reader.end = max(reader.end, event["t"])
            except MALFORMED:
                damage.damaged += 1
        reader.probes.sort(key=lambda probe: probe.t)
        return reader

    def fill(self, lane: "Lane") -> None:
        """Give a lane what the history says of it."""
        name = lane.name
        for (of, key), submission in self._submissions.items():
            if of == name:
                lane.submissions[key] = submission
        lane.rows = self._rows.get(name, {})
        by_key = {row.key: row.row for row in lane.rows.values()}
        for submission in lane.submissions.values():
            if submission.row is None and submission.outcome == "info":
                submission.row = by_key.get(submission.key)
            if submission.row is not None and submission.outcome != "fail":
                lane.by_row[submission.row] = submission
        for claim in self._claims.get(name, ()):
            lane.claims[claim.row].append(claim)
        for (of, row, *_), report in self._reports.items():
            if of == name:
                lane.reports[row].append(report)
        for row, moments in self._clears.get(name, {}).items():
            lane.clears[row].extend(moments)
        lane.lost_answers = [
            fault.active() for fault in self.faults if fault.kind is FaultClass.ANSWER_LOST and fault.hits(name)
        ]

    def _phase(self, event: Event) -> None:
        if self.phases and self.phases[-1].name == event["phase"]:
            return  # it goes on
        if self.phases:
            self.phases[-1].ended = event["t"]
        self.phases.append(Phase(event["phase"], event["t"]))

    def _fault(self, event: Event) -> None:
        fault = self._fault_of(event)
        step, type_, t = event.get("step"), event["type"], event["t"]
        evidence = event.get("evidence") or {}
        if type_ == "fail":
            seen = evidence.get("error") or event.get("error") or evidence or "no evidence"
            fault.failures.append(f"{step} failed: {seen}")
            return
        if type_ == "ok":
            fault.evidence[str(step)] = evidence
        at = evidence.get("at", t) if isinstance(evidence, dict) else t
        if step == "inject" and fault.inject_began is None:
            fault.inject_began = t
        elif step == "heal" and fault.heal_began is None:
            fault.heal_began = t
        elif step == "confirm_fired" and type_ == "ok":
            fault.fired_at = at
        elif step == "confirm_healed" and type_ == "ok":
            fault.healed_at = at

    def _fault_of(self, event: Event) -> Fault:
        """The injection that an event belongs to: the last of its name, or a new one where it begins again."""
        name, begins = event["fault"], event.get("step") == "inject" and event["type"] == "invoke"
        last = next((fault for fault in reversed(self.faults) if fault.name == name), None)
        if last is None or (begins and last.inject_began is not None):
            lanes = event.get("lanes")
            last = Fault(name, class_of(name, event.get("class")), tuple(lanes) if lanes else None)
            self.faults.append(last)
        return last

    def _probe(self, event: Event) -> None:
        if event["type"] == "invoke":
            return
        self.probes.append(
            Probe(
                t=event["t"],
                started=float(event.get("started") or event["t"]),
                lane=event.get("lane"),
                connection=event.get("connection") or "new",
                accepted=event["type"] == "ok",
                code=event.get("code"),
                cause=event.get("cause"),
            )
        )

    def _submit(self, event: Event) -> None:
        key = (intern(event["lane"]), event["key"])
        t, due, type_ = event["t"], event.get("due"), event["type"]
        known = self._submissions.get(key)
        if known is None:
            # Until its outcome is on record it is unknown: a load that died asked, and nobody knows what came of it.
            known = Submission(key[0], key[1], None, due if due is not None else t, "info", t)
            self._submissions[key] = known
        known.expect = event.get("expect", known.expect)
        if type_ == "invoke" or OUTCOME_RANK[type_] < OUTCOME_RANK[known.outcome]:
            return
        if type_ == "ok" and known.outcome != "ok":
            # A task that is handed in late is due from then on: nobody could have offered it earlier.
            known.submitted_at, known.due = t, max(known.due, t)
        known.outcome = type_
        known.row = event.get("row") if event.get("row") is not None else known.row

    def _agent(self, event: Event) -> None:
        said = event.get("agent")
        pod = event.get("pod") or ""
        if said == "report":
            self._last_of_pod[pod] = event
        if said not in ("report", "accepted", "refused", "retry"):
            return
        # Not every line of an agent repeats who it is; its pod's last report does.
        about = event if event.get("nonce") is not None else {**self._last_of_pod.get(pod, {}), **event}
        if about.get("row") is None or about.get("epoch") is None:
            return
        report = self._report_of(about, pod)
        if said == "accepted" and report.accepted is None:
            report.accepted = event["t"]
        elif said == "refused" and report.refused is None:
            report.refused, report.reason = event["t"], event.get("reason")
        elif said == "retry":
            report.retries += 1

    def _report_of(self, about: Event, pod: str) -> Report:
        lane, row, epoch = intern(about["lane"]), int(about["row"]), int(about["epoch"])
        uid, nonce, what = intern(about.get("pod_uid") or ""), intern(about.get("nonce") or ""), intern(about["what"])
        key = (lane, row, epoch, uid, nonce, what)
        report = self._reports.get(key)
        if report is None:
            report = self._reports[key] = Report(lane, row, epoch, uid, nonce, what, pod, about["t"])
        return report

    def _create_claim(self, event: Event) -> None:
        lane, _, replica = event["process"].partition("/")
        lane = event.get("lane", lane)
        attempts = event.get("attempts")
        self._claims[lane].append(
            CreateClaim(
                lane=intern(lane),
                replica=intern(replica),
                row=int(event["row"]),
                epoch=int(event["epoch"]),
                try_number=int(event.get("try") or 1),
                disposition=intern(event["disposition"].capitalize()),
                cause=intern(event.get("cause") or ""),
                may_exist=bool(event.get("may_exist")),
                started=event["started"],
                ended=event["ended"],
                settled=bool(event.get("settled")),
                next_offer=event.get("next_offer"),
                attempts=int(attempts) if attempts is not None else None,
                unavailable_since=event.get("unavailable_since"),
                decision=event.get("decision"),
            )
        )

    def _row_claim(self, event: Event) -> None:
        row = int(event["row"])
        self._rows[event["lane"]][row] = RowClaim(
            lane=event["lane"],
            row=row,
            key=event.get("key") or "",
            state=event["state"],
            reason=event.get("reason") or "",
            try_number=int(event.get("try_number") or 1),
            max_tries=int(event.get("max_tries") or 1),
            retries=int(event.get("retries") or 0),
            attempt_epoch=int(event.get("attempt_epoch") or 0),
            dispatch_attempts=int(event.get("dispatch_attempts") or 0),
        )

    def _clear(self, event: Event) -> None:
        if event["type"] == "ok":
            self._clears[event["lane"]][int(event["row"])].append(event["t"])
