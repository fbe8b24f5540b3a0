"""What faults behind the API leave in a run's records: dispatchers or databases away, agents cut off or killed.

As in `refusals`, what is told here happens between the recovery of a synthetic run and its answer-lost phase, or in the
middle of its outage.
"""

from tests.checkers import spoil
from tests.checkers.refusals import move
from tests.checkers.synthetic import SyntheticRun

BEGIN, BACK = 38.7, 39.5
"""When a dispatcher, or its database, is away: everything that waited for the API has been answered by then."""
DUE = 38.9
BUDGET_S = 6.2
"""So that a late answer comes before the answer-lost phase."""
IN_THE_OUTAGE = (12.0, 18.0)


def away(run: SyntheticRun, lane: str, fault: str, answered_after_s: float) -> int:
    """One row is due while the dispatcher is away and answered so long after its return; returns the row."""
    run.info["budgets"].update(due_away=1, recovery_s=BUDGET_S)
    spoil.injected_fault(run, fault, BEGIN, BACK)
    row = run.pick(lane, "after")
    move(run, lane, row, DUE)
    spoil.answer_at(run, lane, row, BACK + answered_after_s)
    return row


def away_in_the_outage(run: SyntheticRun, lane: str, fault: str) -> None:
    """The dispatcher is back before the API is: what is due meanwhile can be answered only then."""
    run.info["budgets"].update(due_away=0)
    spoil.injected_fault(run, fault, *IN_THE_OUTAGE)


def cut_off(run: SyntheticRun, lane: str, row: int, *, lasts: float) -> None:
    """A row's agent is cut off as soon as its code runs, and ends it when its lease is nearly over; the row is placed
    again. `lasts` is how long the partition really was."""
    spoil.kill_and_run_again(run, lane, row, fault=None)
    begun = run.code(lane, row, "start")[0]["t"]
    run.code(lane, row, "exit")[0]["t"] = begun + 24.5
    spoil.injected_fault(run, "partition", begun + 0.2, begun + 0.2 + lasts)


def in_vain(run: SyntheticRun, lane: str, row: int, *, away_for: float) -> None:
    """The code ends while the database is away, and nobody takes the report before the lease is over."""
    ended = run.code(lane, row, "end")[0]["t"]
    sent = run.events("agent", lane=lane, row=row, what="running", agent="accepted")[0]["t"]
    gone = run.events("agent", lane=lane, row=row, what="finished", agent="accepted")[0]
    gone["agent"], gone["reason"] = "refused", "stale epoch"
    gone["t"] = sent + 31
    spoil.start_again(run, lane, row, at=sent + 30.5)
    spoil.injected_fault(run, "postgres-restart", ended - 0.1, ended - 0.1 + away_for)


def asked_again(run: SyntheticRun, lane: str, row: int) -> None:
    """The row's agent got no answer to its first report, and asked again until it did."""
    report = run.events("agent", lane=lane, row=row, what="running", agent="report")[0]
    run.history.append({**report, "t": report["t"] + 0.005, "agent": "retry", "error": "TimeoutError"})


def partitioned(run: SyntheticRun, lane: str, *, met: bool) -> None:
    """A short partition around the answer of one agent, which it met or not."""
    run.info["budgets"].update(running_when_hit=0)
    row = run.pick(lane, "after")
    sent = run.events("agent", lane=lane, row=row, what="running", agent="report")[0]["t"]
    spoil.injected_fault(run, "partition", sent - 0.5, sent + 0.5)
    if met:
        asked_again(run, lane, row)


def slowed(run: SyntheticRun, lane: str, *, took: float) -> None:
    """Answers are delayed by 0.8 s for a while; the one create of that time took `took` seconds."""
    row = run.pick(lane, "after")
    move(run, lane, row, DUE)
    claim = run.events("create", lane=lane, row=row)[-1]
    claim["ended"] = claim["started"] + took
    spoil.injected_fault(run, "latency", BEGIN, BACK + 3)
    fired = run.events("fault", fault="latency", step="confirm_fired", type="ok")[0]
    fired["evidence"]["delay_s"] = 0.8


def lost_its_row(run: SyntheticRun, lane: str, row: int, *, settled: bool) -> None:
    """A claim dies while its create hangs; the pod's report is refused, since the row has moved on to another epoch."""
    spoil.refuse_current_report(run, lane, row)
    claim = run.events("create", lane=lane, row=row)[-1]
    claim.update(disposition="Unavailable", cause="deadline exceeded after 5s", may_exist=True, settled=settled)
    epoch = claim["epoch"] + 2
    if settled:
        claim.update(disposition="Placed", cause="")
    spoil.claim_row(run, lane, row, attempt_epoch=epoch)
