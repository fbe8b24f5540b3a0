"""Did the faults really happen?"""

import re

from chaos.audit import Answer
from chaos.checkers.base import CheckResult, Finding
from chaos.events import Fault, FaultClass, Report
from chaos.records import Records

TOTAL = re.compile(
    r"control-plane-stop|apiserver-(kill|stop|long-stop)|proxy-off|refused|black-hole|connections-reset"
    r"|webhook-(down|slow|tls|garbage)|load-balancer"
)
"""Faults under which no create can be committed for a lane, once the last ones have drained."""
DRAIN_S = 5.0
"""Requests under way when a server is told to stop may still be finished."""


class FaultFired:
    """Every fault that was injected was seen to bite by a client of the suite, and by this lane. What was not seen to
    happen proves nothing."""

    name = "fault_fired"

    def check(self, records: Records, lane: str) -> CheckResult:
        found = Finding(records, lane)
        faults = records.faults_of(lane)
        found.need("history")
        if not faults:
            found.doubt("no fault was injected")
        for fault in faults:
            if fault.kind is FaultClass.OTHER:
                found.doubt(f"{fault.name} is of no known class, so nothing can be expected of it")
            if fault.fired_at is None:
                failed = [why for why in fault.failures if why.startswith(("inject", "confirm_fired"))]
                found.doubt(f"{fault.name} was not seen to fire" + (f": {failed[0]}" if failed else ""))
                continue
            found.figures.setdefault("fired_at_s", {})[fault.name] = round(fault.fired_at, 3)
            if TOTAL.search(fault.name.replace("_", "-")):
                _expect_silence(found, fault)
            if fault.kind is FaultClass.ANSWER_LOST:
                _expect_lost_answers(found, fault)
            if fault.kind is FaultClass.DENIAL:
                _expect_answers(found, fault, Answer.REJECTED, "denied_by_api")
            if fault.kind is FaultClass.PRESSURE:
                _expect_answers(found, fault, Answer.BACKPRESSURE, "put_off_by_api")
            if fault.kind is FaultClass.SLOW:
                _expect_late_answers(found, fault)
            if fault.kind is FaultClass.NODE:
                _expect_agents_hit(found, fault)
        return found.result()


def _expect_silence(found: Finding, fault: Fault) -> None:
    """No create of this lane was committed while a total outage held."""
    fired, until = fault.biting()
    lane = found.records.lanes[found.lane]
    leaked = [c for c in lane.all_creates() if c.committed and c.started > fired + DRAIN_S and c.ended < until]
    found.figures["committed_in_outage"] = found.figures.get("committed_in_outage", 0) + len(leaked)
    if leaked:
        first = min(leaked, key=lambda create: create.started)
        found.doubt(
            f"{fault.name} did not hold: {len(leaked)} creates were committed in it, "
            f"the first for row {first.row} at {first.started:.1f} s"
        )


def _expect_answers(found: Finding, fault: Fault, answer: Answer, figure: str) -> None:
    """At least one create of this lane was answered as the fault makes the API answer."""
    begin, end = fault.active()
    creates = found.records.lanes[found.lane].all_creates()
    met = sum(create.answer is answer and begin <= create.ended and create.started <= end for create in creates)
    found.figures[figure] = found.figures.get(figure, 0) + met
    if not met:
        found.need("audit")
        found.doubt(f"{fault.name} met no create of this lane: none was {answer} by the API")


def _expect_lost_answers(found: Finding, fault: Fault) -> None:
    """At least one create of this lane was committed whose answer its client never had."""
    begin, end = fault.active()
    lane = found.records.lanes[found.lane]
    heard = {
        (answered.create.row, answered.create.epoch)
        for row in lane.creates
        for answered in lane.answers(row)
        if not answered.by_running
    }
    lost = [
        c
        for c in lane.all_creates()
        if c.committed and begin <= c.ended and c.started <= end and (c.row, c.epoch) not in heard
    ]
    found.figures["answers_lost"] = found.figures.get("answers_lost", 0) + len(lost)
    if not lost:
        found.need("audit")
        found.doubt(f"{fault.name} took no answer from this lane: no create was committed in it and unheard")


def _expect_late_answers(found: Finding, fault: Fault) -> None:
    """At least one create of this lane took as long as the fault makes an answer take."""
    begin, end = fault.biting()
    delay = float(fault.evidence.get("confirm_fired", {}).get("delay_s", 0.0))
    claims = found.records.lanes[found.lane].all_claims()
    late = sum(c.ended - c.started >= 0.9 * delay and begin <= c.started and c.ended <= end for c in claims)
    found.figures["late_answers"] = found.figures.get("late_answers", 0) + late
    if not late:
        found.doubt(f"{fault.name} met no create of this lane: none took {delay:g} s")


def _expect_agents_hit(found: Finding, fault: Fault) -> None:
    """An agent that was killed: user code of this lane ended without a word. One that was cut off: an agent of this
    lane had to ask again."""
    begin, end = fault.active()
    lane = found.records.lanes[found.lane]
    if "kill" in fault.name:
        ran = (one for executions in lane.executions.values() for one in executions)
        hit = sum(one.ended is None and one.exited is not None and begin <= one.exited <= end for one in ran)
        figure, what = "killed", "no user code of this lane was killed"
    else:
        hit = sum(
            report.retries > 0 and report.sent <= end and _answered_at(report) >= begin for report in lane.all_reports()
        )
        figure, what = "cut_off", "no agent of this lane had to ask again"
    found.figures[figure] = found.figures.get(figure, 0) + hit
    if not hit:
        found.need("history", "ledger")
        found.doubt(f"{fault.name} met nobody: {what}")


def _answered_at(report: Report) -> float:
    answered = report.accepted if report.accepted is not None else report.refused
    return answered if answered is not None else float("inf")
