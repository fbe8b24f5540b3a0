"""Did every task that was handed in end as it should?"""

from chaos.checkers.base import CheckResult, Finding
from chaos.events import RowClaim, Submission
from chaos.records import Lane, Records


class NoLostTask:
    """Every task that was accepted ended as it should: its code ran to the outcome it was given to have, by the
    ledger, and the dispatcher says the same. None is still waiting when the run has drained, and none failed for the
    outage."""

    name = "no_lost_task"

    def check(self, records: Records, lane: str) -> CheckResult:
        found, of = Finding(records, lane), records.lanes[lane]
        found.need("history", "ledger")
        unknown = [one for one in of.submissions.values() if one.outcome == "info"]
        found.figures = {
            "accepted": sum(one.outcome == "ok" for one in of.submissions.values()),
            "unknown_submissions": len(unknown),
            "succeeded": 0,
            "failed": 0,
            "unfinished": 0,
        }
        if not records.drained:
            found.doubt("the run was broken off before its drain")
        if not of.rows:
            found.doubt("the rows' last states are not on record")
        for submission in of.submissions.values():
            if submission.outcome == "ok" and submission.row is not None:
                _ended_as_it_should(found, of, submission, submission.row)
        return found.result()


def _ended_as_it_should(found: Finding, lane: Lane, submission: Submission, row: int) -> None:
    claim = lane.rows.get(row)
    outcomes = [one.outcome for one in lane.executions.get(row, ())]
    found.figures["succeeded"] += "success" in outcomes
    found.figures["failed"] += claim is not None and claim.state == "failed"
    if claim is None:
        if lane.rows:
            what = f"{submission.key} was accepted, and the dispatcher knows no such row"
            found.absence("history", row, submission.due, what)
        return
    if not claim.ended:
        found.figures["unfinished"] += 1
        if found.records.drained:
            found.offence(row, submission.due, f"still {claim.state} at the end ({claim.reason or 'no reason given'})")
        return
    wrong = _unlike(submission.expect, claim, outcomes)
    if wrong is not None and claim.state == "success" and not outcomes:
        found.absence("ledger", row, submission.due, wrong)
    elif wrong is not None:
        found.offence(row, submission.due, wrong, reason=claim.reason)


def _unlike(expect: str, claim: RowClaim, outcomes: list[str | None]) -> str | None:
    """What is wrong with the end, in words; None if it is as expected."""
    ran = outcomes[-1] if outcomes else None
    said = f"{claim.state}{f' ({claim.reason})' if claim.reason else ''}"
    if expect == "any":
        return None
    if expect == "success":
        if claim.state == "success" and "success" in outcomes:
            return None
        return f"should have succeeded; it is said to be {said}, its code ended with {ran or 'nothing'}"
    if expect == "failure":
        if claim.state == "failed" and not claim.dispatch_failed and ran == "failure":
            return None
        return f"its code should have run and failed; it is said to be {said}, its code ended with {ran or 'nothing'}"
    wanted = "dispatch_failed: rejected" if expect == "rejected" else "dispatch_failed"
    if claim.state == "failed" and claim.reason.startswith(wanted) and not outcomes:
        return None
    return f"should have failed as {wanted} without running; it is said to be {said}, its code ended with {ran}"
