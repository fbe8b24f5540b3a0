"""Did every task that was handed in end as it should?

How it should is in its submission: nearly always with success. A task that a webhook was told to deny should fail, and
no sooner and no later than R6 has it: after the sixth rejection, in the exact words, without its code having run.
"""

import re

from chaos.audit import Answer
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
        if any(one.expect == "rejected" for one in of.submissions.values()):
            found.need("audit")
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
    if submission.expect == "rejected":
        wrong = _unlike_rejected(found, lane, claim, outcomes)
    else:
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
    if claim.state == "failed" and claim.reason.startswith("dispatch_failed") and not outcomes:
        return None
    return f"should have failed as dispatch_failed without running; it is said to be {said}, its code ended with {ran}"


def _unlike_rejected(found: Finding, lane: Lane, claim: RowClaim, outcomes: list[str | None]) -> str | None:
    """R6: `dispatch_failed: rejected 6 times: <cause>`, and the audit log has as many refusals of it, the last of
    them with that cause's code."""
    budget = int(found.records.run.setting("attempts"))
    refusals = [create for create in lane.creates.get(claim.row, ()) if create.answer is Answer.REJECTED]
    if claim.state == "success" and len(refusals) < budget:
        found.doubt(
            f"row {claim.row} was refused {len(refusals)} times and then taken: the denial was over before "
            f"the {budget} attempts were spent"
        )
        return None
    told = re.fullmatch(r"dispatch_failed: rejected (\d+) times: (\d{3}) \S.*", claim.reason)
    said = f"{claim.state}{f' ({claim.reason})' if claim.reason else ''}"
    if claim.state != "failed" or told is None or int(told[1]) != budget:
        return f"should have failed as `dispatch_failed: rejected {budget} times: <cause>`; it is said to be {said}"
    if outcomes:
        return f"it is said to be {said}, and its code ran and ended with {outcomes[-1] or 'nothing'}"
    if len(refusals) != budget or refusals[-1].code != int(told[2]):
        last = f", the last time with {refusals[-1].code}" if refusals else ""
        return f"it is said to be {said}, and the apiserver refused it {len(refusals)} times{last}"
    return None
