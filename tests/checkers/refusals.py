"""Runs in which the API refuses: a webhook denies some tasks on purpose, or there is no room for a while.

Both happen between the recovery of a synthetic run and its answer-lost phase. To fit there, the backoff is shortened
to 0.3 s: six attempts then take 9.3 s. The first row of the part "after" is refused, the second is a bystander.
"""

from typing import Any

from tests.checkers import spoil
from tests.checkers.synthetic import Event, SyntheticRun

BEGIN, END = 33.2, 45.5
ROOM = 40.0
"""When there is room again."""
DUE, BYSTANDER_DUE = 33.6, 36.0
BACKOFF_S = 0.3
DENIAL = 'admission webhook "gate.rideout.dev" denied the request: denied by the chaos suite'
CAUSE = "403 denied by webhook"
QUOTA = 'pods "run-1" is forbidden: exceeded quota: rideout, requested: pods=1, used: pods=1, limited: pods=1'


def denial(run: SyntheticRun, lane: str) -> int:
    """A webhook denies one row until its six attempts are spent; returns the row."""
    _small(run)
    spoil.injected_fault(run, "webhook-denies", BEGIN, END)
    row = run.pick(lane, "after")
    move(run, lane, run.pick(lane, "after", 1), BYSTANDER_DUE)
    for event in run.events("submit", lane=lane):
        if event["key"] == run.events("submit", lane=lane, row=row)[0]["key"]:
            event.update(due=DUE, expect="rejected")
    placed, claim = _unplaced(run, lane, row)
    t = DUE + 0.02
    for attempt in range(6):
        epoch = 2 * attempt + 1
        _refused(run, placed, epoch, t, 403, "Forbidden", DENIAL)
        more = {"attempts": attempt + 1, "decision": "re-offer" if attempt < 5 else "fail"}
        after = t + 0.03 + BACKOFF_S * 2**attempt
        _claimed(run, claim, epoch, t, "Rejected", CAUSE, next_offer=after if attempt < 5 else None, **more)
        t = after + 0.02
    reason = f"dispatch_failed: rejected 6 times: {CAUSE}: {DENIAL}"
    spoil.claim_row(run, lane, row, state="failed", reason=reason, max_tries=1, dispatch_attempts=6)
    return row


def pressure(run: SyntheticRun, lane: str, *, fault: str = "throttle", until: float = ROOM) -> int:
    """One row is put off every second until there is room, and then placed; returns the row."""
    _small(run)
    spoil.injected_fault(run, fault, BEGIN, ROOM + 0.2)
    for probe in run.events("probe", lane=lane):
        if BEGIN < probe["t"] < ROOM:
            probe.update(type="fail", code=429, cause="429 TooManyRequests")
    row = run.pick(lane, "after")
    _, claim = _unplaced(run, lane, row, keep=True)
    placed = run.creates(lane, row)[0]
    for event in run.events("submit", lane=lane):
        if event["key"] == run.events("submit", lane=lane, row=row)[0]["key"]:
            event["due"] = DUE
    code, reason, message = (403, "Forbidden", QUOTA) if fault == "quota" else (429, "TooManyRequests", "")
    t, epoch = DUE + 0.02, 1
    while t < until:
        _refused(run, placed, epoch, t, code, reason, message)
        cause = "403 quota" if fault == "quota" else "429 TooManyRequests"
        more = {"attempts": 0, "decision": "re-offer"}
        _claimed(run, claim, epoch, t, "Backpressure", cause, next_offer=t + 1.03, **more)
        t, epoch = t + 1.06, epoch + 2
    renumber(run, lane, row, placed, epoch)
    spoil.answer_at(run, lane, row, t + 0.03)
    return row


def move(run: SyntheticRun, lane: str, row: int, due: float) -> None:
    """The row is due at another time, and everything that became of it comes as much later."""
    submitted = run.events("submit", lane=lane, row=row)[0]
    shift = due - submitted["due"]
    for event in run.events("submit", lane=lane):
        if event["key"] == submitted["key"]:
            event["due"] = due
    spoil.answer_at(run, lane, row, run.creates(lane, row)[0]["answered"] + shift)


def renumber(run: SyntheticRun, lane: str, row: int, placed: Event, epoch: int) -> None:
    """The create that is placed comes under a later epoch. `answer_at` moves the row's first create: make it that."""
    before = placed["epoch"]
    for event in [*run.ledger, *run.events("agent"), *run.events("create", decision="place")]:
        if (event["lane"], event["row"], event["epoch"]) == (lane, row, before):
            event["epoch"] = epoch
    placed["epoch"] = epoch
    run.audit.remove(placed)
    run.audit.insert(0, placed)


def _small(run: SyntheticRun) -> None:
    run.info["settings"].update(backoff_s=BACKOFF_S, backpressure_delay_s=1.0, backpressure_max_s=6.0)
    run.info["budgets"].update(due_denied=1, due_bystanders=1, due_under_pressure=1)


def _unplaced(run: SyntheticRun, lane: str, row: int, *, keep: bool = False) -> tuple[Event, Event]:
    """The row's accepted create and what the dispatcher says of it; taken away with its pod, unless they are kept."""
    placed = run.creates(lane, row)[-1]
    claim = run.events("create", lane=lane, row=row)[-1]
    if not keep:
        spoil.never_run(run, lane, row)
        run.audit.remove(placed)
        run.history.remove(claim)
    return placed, claim


def _refused(run: SyntheticRun, like: Event, epoch: int, t: float, code: int, reason: str, message: str) -> None:
    again = {"epoch": epoch, "received": t + 0.002, "answered": t + 0.028, "id": f"{like['row']}-{epoch}"}
    run.audit.append({**like, **again, "code": code, "reason": reason, "message": message})


def _claimed(run: SyntheticRun, like: Event, epoch: int, t: float, disposition: str, cause: str, **more: Any) -> None:
    said = {"disposition": disposition, "cause": cause, "started": t, "ended": t + 0.03, "may_exist": False}
    run.history.append({**like, "epoch": epoch, "unavailable_since": None, **said, **more})
