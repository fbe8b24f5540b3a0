"""Was there enough to do for the run to prove anything?"""

from chaos.checkers.base import CheckResult, Finding
from chaos.events import Fault, FaultClass
from chaos.records import Lane, Records

LEAST = {
    "due_before": 5,
    "due_during": 20,
    "due_after": 5,
    "opening_due": 20,
    "due_answer_lost": 3,
    "due_denied": 5,
    "due_bystanders": 5,
    "due_under_pressure": 5,
    "due_away": 3,
    "running_when_hit": 3,
    "submitted": 1,
}
"""How many tasks a lane must have had, unless the run's budgets say otherwise under the same name."""
OPENING_S = 20.0
BEHIND_THE_API = (FaultClass.DISPATCHER, FaultClass.DATABASE, FaultClass.NODE)


class LoadSufficient:
    """Enough tasks were due before, during and after each outage, and enough of them so early in it that the old
    attempt budget could be used up before the API's return. A run without that load proves nothing."""

    name = "load_sufficient"

    def check(self, records: Records, lane: str) -> CheckResult:
        found, of = Finding(records, lane), records.lanes[lane]
        found.need("history")
        if not records.faults_of(lane):
            found.doubt("no fault was injected")
        _expect(found, "submitted", len(of.by_row), "handed in")
        outages = [fault for fault in records.episodes(lane, FaultClass.OUTAGE) if fault.fired_at is not None]
        others = [fault for fault in records.faults_of(lane, *BEHIND_THE_API) if fault.fired_at is not None]
        if around := outages or others:
            first = around[0].biting()[0]
            last = max(_over(records, fault, lane) for fault in around)
            _expect(found, "due_before", len(of.due_between(float("-inf"), first)), f"due before {around[0].name}")
            _expect(found, "due_after", len(of.due_between(last, float("inf"))), f"due after {around[-1].name}")
        for fault in outages:
            fired, over = fault.biting()[0], _over(records, fault, lane)
            _expect(found, "due_during", len(of.due_between(fired, over)), f"due during {fault.name}")
            if records.run.compared:
                _expect_opening(found, fault, fired, over)
        for fault in records.episodes(lane, FaultClass.ANSWER_LOST):
            if fault.fired_at is not None:
                _expect(found, "due_answer_lost", len(of.due_between(*fault.biting())), f"due during {fault.name}")
        for fault in records.faults_of(lane, FaultClass.DENIAL, FaultClass.PRESSURE):
            due = of.due_between(*fault.biting()) if fault.fired_at is not None else []
            if fault.kind is FaultClass.DENIAL:
                denied = sum(one.expect == "rejected" for one in due)
                _expect(found, "due_denied", denied, f"due during {fault.name} and meant to be denied")
                _expect(found, "due_bystanders", len(due) - denied, f"due during {fault.name} and to be spared")
            else:
                _expect(found, "due_under_pressure", len(due), f"due during {fault.name}")
        for fault in others:
            fired, over = fault.biting()[0], _over(records, fault, lane)
            if fault.kind is FaultClass.NODE:
                _expect(found, "running_when_hit", _running_at(of, fired), f"running when {fault.name} fired")
            else:
                _expect(found, "due_away", len(of.due_between(fired, over)), f"due during {fault.name}")
        return found.result()


def _running_at(lane: Lane, moment: float) -> int:
    ran = (one for executions in lane.executions.values() for one in executions)
    return sum(one.started <= moment and (one.over is None or one.over >= moment) for one in ran)


def _expect(found: Finding, name: str, count: int, where: str) -> None:
    """With several faults the smallest count is shown."""
    least = int(found.records.run.budgets.get(name, LEAST[name]))
    found.figures[name] = min(count, found.figures.get(name, count))
    found.figures[f"{name}_least"] = least
    if count < least:
        found.doubt(f"only {count} tasks were {where}; at least {least} are needed")


def _expect_opening(found: Finding, fault: Fault, fired: float, over: float) -> None:
    """Only tasks that were due this early can have used up six attempts (R6) when the API returns."""
    run = found.records.run
    opening = min(run.budgets.get("opening_s", OPENING_S), over - fired - run.attempts_span_s)
    found.figures["opening_s"] = round(opening, 1)
    if opening <= 0:
        found.doubt(
            f"{fault.name} lasted {over - fired:.0f} s, no longer than the attempt budget of {run.attempts_span_s:g} s"
        )
        return
    due = len(found.records.lanes[found.lane].due_between(fired, fired + opening))
    _expect(found, "opening_due", due, f"due in the first {opening:.0f} s of {fault.name}")


def _over(records: Records, fault: Fault, lane: str) -> float:
    """When the fault was over for this lane, or the records' end where that is not known."""
    return records.over_at(fault, lane) or fault.healed_at or records.end
