"""Did each task run once, and never twice at a time?

One execution *at a time*, always; one *in all*, unless an agent or its node is lost, or cut off for longer than its
lease (R15). Judged from the ledger, which the code that ran wrote itself; the node's `exit` lines say when killed
code was really gone. Each row is followed from start to start:

    earlier execution ...                                   a second start in the same try is
    has not ended before the second start                   invalid, always
    ended with reschedule                                   valid
    ended without success or failure (killed)               valid where a recorded fault explains it
    ended, but its report was not taken within its lease    valid where a recorded fault explains it
    ended with success or failure, and said so              invalid

An agent that was killed explains only what it took with it. A partition, or a dispatcher or a database that is away,
explains a second execution only if it lasted for as long as an agent may run unheard (its lease less the margin, R15):
a shorter one must cost nothing.

A later *try* is valid after a failure, or after an operator's clear, and never after a success.
"""

import re
from itertools import pairwise

from chaos.checkers.base import CheckResult, Finding
from chaos.events import Fault, FaultClass
from chaos.ledger import Execution
from chaos.records import Lane, Records

EXPLAINS = (FaultClass.NODE, FaultClass.DISPATCHER, FaultClass.DATABASE)
"""An agent killed, a partition, dispatcher or database away: what may end, or cut off, a running execution."""
KILLS = re.compile(r"kill|evict")
"""Which faults of agents end them; the others cut them off."""
NEVER_RAN = ("dispatch_failed", "infra_failed", "cancel")
"""How the reason of a row begins that may have failed without its code having run."""


class SingleExecution:
    """Each row runs once: no two executions of it overlap, and a second one needs a reschedule, a retry, or a recorded
    fault that took the first. Every row that finished has its execution in the ledger, and the other way round."""

    name = "single_execution"

    def check(self, records: Records, lane: str) -> CheckResult:
        found, of = Finding(records, lane), records.lanes[lane]
        found.need("ledger", "history")
        executions = sum(map(len, of.executions.values()))
        found.figures = {"executions": executions, "rows_run": len(of.executions), "executed_twice": 0, "explained": 0}
        if not of.rows:
            found.doubt("the rows' last states are not on record")
        for end in records.unmatched_ends:
            if end.lane == lane:
                found.doubt(f"row {end.row}: the ledger has an end of an execution that it has no start of")
        for row, of_row in of.executions.items():
            _single_starts(found, row, of_row)
            _one_at_a_time(found, row, of_row)
        _both_ways(found, of)
        return found.result()


def _single_starts(found: Finding, row: int, executions: list[Execution]) -> None:
    """At most one start per (row, epoch, pod uid, nonce)."""
    seen = set()
    for one in executions:
        if one.identity in seen:
            found.figures["executed_twice"] += 1
            what = f"the same agent process started the code twice (epoch {one.epoch}, pod {one.pod_uid})"
            found.offence(row, one.started, what, epoch=one.epoch, pod_uid=one.pod_uid)
        seen.add(one.identity)


def _one_at_a_time(found: Finding, row: int, executions: list[Execution]) -> None:
    """Follow a row from start to start. The latest end so far counts, so that a long first one hides behind none."""
    longest = executions[0] if executions else None
    for earlier, later in pairwise(executions):
        assert longest is not None
        if _end(earlier) > _end(longest):
            longest = earlier
        if _end(longest) > later.started:
            found.figures["executed_twice"] += 1
            ends = "no end on record" if longest.over is None else f"ended at {longest.over:.3f} s"
            what = (
                f"two executions at a time: epoch {longest.epoch} began at {longest.started:.3f} s, {ends}; "
                f"epoch {later.epoch} began at {later.started:.3f} s"
            )
            found.offence(row, later.started, what, epochs=[longest.epoch, later.epoch])
        elif (why := _unjustified(found, row, earlier, later)) is not None:
            found.figures["executed_twice"] += 1
            found.absence("history", row, later.started, f"executed again {why}", epochs=[earlier.epoch, later.epoch])


def _end(execution: Execution) -> float:
    return execution.over if execution.over is not None else float("inf")


def _unjustified(found: Finding, row: int, earlier: Execution, later: Execution) -> str | None:
    """Why the later execution should not have been, in words; None if it was right."""
    lane = found.records.lanes[found.lane]
    over = earlier.over
    assert over is not None
    if any(over <= cleared <= later.started for cleared in lane.clears.get(row, ())):
        return None
    if later.try_number > earlier.try_number:
        return None if earlier.outcome != "success" else "in a new try after it had succeeded"
    if earlier.outcome == "reschedule":
        return None
    if earlier.outcome is not None and not _report_in_vain(found, row, earlier, later):
        return f"in the same try after it had ended with {earlier.outcome} and could say so"
    if any(_explains(found.records, fault, earlier, later) for fault in found.records.faults_of(found.lane, *EXPLAINS)):
        found.figures["explained"] += 1
        return None
    return f"in the same try after {earlier.outcome or 'its code was killed'}, and no recorded fault explains it"


def _explains(records: Records, fault: Fault, earlier: Execution, later: Execution) -> bool:
    begin, end = fault.active()
    if fault.kind is FaultClass.NODE and KILLS.search(fault.name):
        return earlier.outcome is None and earlier.over is not None and begin <= earlier.over <= end
    unheard_s = records.run.setting("lease_s") - records.run.setting("lease_margin_s")
    return begin <= later.started and earlier.started <= end and end - begin >= unheard_s


def _report_in_vain(found: Finding, row: int, earlier: Execution, later: Execution) -> bool:
    """Its end could not be delivered before its lease ran out: no report of it was taken before the second start, and
    that start came a whole lease after the last report that was. The agent counts its lease from sending (R15)."""
    reports = [r for r in found.records.lanes[found.lane].reports.get(row, ()) if r.identity == earlier.identity]
    taken = [r for r in reports if r.accepted is not None and r.accepted < later.started]
    if any(report.what == "finished" for report in taken):
        return False
    last_sent = max((report.sent for report in taken), default=earlier.started)
    return later.started >= last_sent + found.records.run.setting("lease_s")


def _both_ways(found: Finding, lane: Lane) -> None:
    """Every finished row has its ledger entry, and the other way round. Only the row's last try counts: an earlier one
    may have ended otherwise."""
    for row, claim in lane.rows.items():
        last_try = [one for one in lane.executions.get(row, ()) if one.try_number == claim.try_number]
        outcomes = [one.outcome for one in last_try]
        if claim.state == "success" and "success" not in outcomes:
            found.absence("ledger", row, None, "it is said to have succeeded, and no execution of it ended so")
        elif claim.state == "failed" and "success" in outcomes:
            found.offence(row, last_try[-1].over, f"it succeeded, and is said to have failed ({claim.reason})")
        elif claim.dispatch_failed and last_try and not _may_be_placed_again(found, last_try[-1]):
            found.offence(row, last_try[-1].started, f"it ran, and is said never to have been placed ({claim.reason})")
        elif claim.state == "failed" and not claim.reason.startswith(NEVER_RAN) and not last_try:
            found.absence("ledger", row, None, f"it is said to have run and failed ({claim.reason}), and never ran")
        elif not claim.ended and "success" in outcomes and found.records.drained:
            found.offence(row, last_try[-1].over, f"it succeeded, and is said to be {claim.state}")
    for row, executions in lane.executions.items():
        if lane.rows and row not in lane.rows:
            found.absence("history", row, executions[0].started, "it ran, and the dispatcher knows no such row")


def _may_be_placed_again(found: Finding, execution: Execution) -> bool:
    """Whether the row was rightly offered once more after this execution, so that the new offer could fail."""
    if execution.outcome == "reschedule":
        return True
    faults = found.records.faults_of(found.lane, *EXPLAINS)
    return execution.outcome is None and any(_explains(found.records, one, execution, execution) for one in faults)
