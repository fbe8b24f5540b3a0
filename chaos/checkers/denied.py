"""Was exactly what should be denied denied, at the pace of R6, and did nobody else suffer?

A denial is an answer: it spends an attempt, and the next offer comes 5, 10, 20, 40, 80 s later, so that a permanent
refusal surfaces in minutes. Who is denied was decided beforehand (`Submission.expect`), and shown by the audit log.
That those rows fail in the right words is what `no_lost_task` says.
"""

from itertools import pairwise

from chaos.audit import Answer, Create
from chaos.checkers.base import CheckResult, Finding, not_applicable
from chaos.events import Fault, FaultClass, Submission
from chaos.records import Records

BYSTANDER_S = {"full": 15.0, "quick": 8.0}
"""From due to placed, for a task that no denial is meant for: what a busy machine takes, far less than a backoff."""
CLOCKS_S = 0.1
"""What the database's clock and the apiserver's may differ by."""


class Denied:
    """What a webhook was told to deny was denied again and again at the pace of R6 until its attempts were spent.
    Nothing else was denied, and every other task that came due meanwhile was placed at once."""

    name = "denied"

    def check(self, records: Records, lane: str) -> CheckResult:
        faults = records.faults_of(lane, FaultClass.DENIAL)
        if not faults:
            return not_applicable("nothing was told to deny pods of this lane")
        found, of = Finding(records, lane), records.lanes[lane]
        found.need("history", "audit")
        meant = {row for row, submission in of.by_row.items() if submission.expect == "rejected"}
        found.figures = {
            "denied_rows": 0,
            "denied_creates": 0,
            "slowest_end_s": None,
            "bystanders": 0,
            "slowest_bystander_s": None,
            "bystander_budget_s": _bystander_s(records),
        }
        for row, creates in of.creates.items():
            denials = [create for create in creates if create.denied]
            found.figures["denied_creates"] += len(denials)
            found.figures["denied_rows"] += bool(denials)
            if denials and row not in meant:
                found.offence(row, denials[0].ended, f"it was denied, and was not meant to be: {denials[0].message}")
            if row in meant:
                _at_the_pace(found, row, [create for create in creates if create.answer is Answer.REJECTED])
        for fault in faults:
            _bystanders(found, fault, meant)
        return found.result()


def _bystander_s(records: Records) -> float:
    return float(records.run.budgets.get("bystander_s", BYSTANDER_S.get(records.run.profile, 15.0)))


def _at_the_pace(found: Finding, row: int, refusals: list[Create]) -> None:
    """R6: the pauses double, none is cut short, and all of them together take about 155 s."""
    run = found.records.run
    for number, (earlier, later) in enumerate(pairwise(refusals)):
        # From request to request: the refusal was heard after the first of them, whatever the log's lag.
        pause, least = later.started - earlier.started, run.setting("backoff_s") * 2**number
        if pause < least - CLOCKS_S:
            what = f"offered again {pause:.2f} s after offer {number + 1}, which was refused; R6 has {least:g} s"
            found.offence(row, later.started, what, epoch=later.epoch)
    if len(refusals) < 2:
        return
    took, most = refusals[-1].ended - refusals[0].started, run.attempts_span_s + run.recovery_budget_s
    found.figures["slowest_end_s"] = max(round(took, 3), found.figures["slowest_end_s"] or 0.0)
    if took > most:
        what = f"its {len(refusals)} refusals took {took:.1f} s, and R6 has {run.attempts_span_s:g} s for all of them"
        found.offence(row, refusals[-1].ended, what)


def _bystanders(found: Finding, fault: Fault, meant: set[int]) -> None:
    lane, budget = found.records.lanes[found.lane], _bystander_s(found.records)
    for submission in lane.due_between(*fault.biting()):
        if submission.row is not None and submission.row not in meant:
            found.figures["bystanders"] += 1
            _placed_at_once(found, submission, submission.row, budget)


def _placed_at_once(found: Finding, submission: Submission, row: int, budget: float) -> None:
    placed = found.records.lanes[found.lane].placed_at(row)
    if placed is None:
        found.absence("audit", row, submission.due, "due during the denial, not meant to be denied, and never placed")
        return
    took = max(0.0, placed - submission.due)
    found.figures["slowest_bystander_s"] = max(round(took, 3), found.figures["slowest_bystander_s"] or 0.0)
    if took > budget:
        found.offence(row, placed, f"placed {took:.1f} s after it was due beside a denial; {budget:g} s are allowed")
