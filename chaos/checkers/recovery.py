"""How soon after the API's return was every waiting row offered again and answered?

Counted from `Records.healed_at`, the probe's first accepted create, to the row's first *answered* offer in the audit
log (`Lane.answers` says what counts as answered, and why). A row that was answered but not placed, with Backpressure
or with a 403 of an apiserver that had just started, met the promise; what holds it from then on is R6 or the
quota, so it is shown apart with its time to placement. An Unavailable before the return voids an earlier answer: the
row was in the outage again.

The *stable time* is Jepsen's: the start of the window from which on all later moments are well, where "well" means
that no row that was never answered has been due for longer than the budget. It is looked for up to the
next fault, which is judged itself: losing the answers takes the API away from a dispatcher just as an outage does.
"""

from dataclasses import dataclass, field
from statistics import median

from chaos.audit import Answer
from chaos.checkers.base import CheckResult, Figures, Finding, not_applicable
from chaos.checkers.window import EVER_UNAVAILABLE
from chaos.events import Fault, FaultClass, Submission
from chaos.records import TAKES_AWAY, Answered, Lane, Records

COUNTS = ("rows", "never_answered", "answered_not_placed", "startup_403s")
STARTUP_S = 10.0
"""How long after the return a 403 still counts as one of the restarted apiserver's (informers not synced)."""


class Recovery:
    """Of the rows that were due between fired and healed, every one is offered again and answered within the budget
    after the API's return. From then on no row waits for its first answer for longer than that."""

    name = "recovery"

    def check(self, records: Records, lane: str) -> CheckResult:
        faults = records.episodes(lane, *TAKES_AWAY)
        if not faults:
            return not_applicable("nothing took the API, its answers, or the dispatcher away from this lane")
        found = Finding(records, lane)
        found.need("history")
        each: dict[str, Figures] = {}
        lost: set[int] = set()
        for number, fault in enumerate(faults, start=1):
            back = records.back_at(fault, lane)
            later = [other.active()[0] for other in faults if back is not None and other.active()[0] > back]
            figures = _after(found, fault, back, min(later, default=float("inf")), lost)
            if figures is not None:
                name = fault.name if fault.name not in each else f"{fault.name} ({number})"
                each[name] = figures
        found.figures = _together(records, each)
        return found.result()


def _together(records: Records, each: dict[str, Figures]) -> Figures:
    """The figures over all faults: the slowest of the slowest, the sum of the counts."""
    figures: Figures = {"rows": 0, "slowest_s": None, "budget_s": records.run.recovery_budget_s, "stable_at_s": None}
    for one in each.values():
        for name in COUNTS:
            figures[name] = figures.get(name, 0) + one[name]
    for name in ("slowest_s", "median_s", "slowest_placement_s"):
        figures[name] = max((one[name] for one in each.values() if one[name] is not None), default=None)
    stable = [one["stable_at_s"] for one in each.values()]
    figures["stable_at_s"] = max(stable, default=None) if None not in stable else None
    return figures | {"faults": each}


@dataclass(slots=True)
class _Times:
    """Seconds from healed to each row's first answer, and the rows that are shown apart."""

    answered: dict[int, float] = field(default_factory=dict)
    never: list[int] = field(default_factory=list)
    apart: dict[int, float | None] = field(default_factory=dict)
    """Row → seconds from healed to its placement, for rows whose first answer was no placement."""


def _after(found: Finding, fault: Fault, healed: float | None, next_fault: float, lost: set[int]) -> Figures | None:
    """Judge the recovery from one fault, which is counted from `healed`. From `next_fault` on the next one is at work,
    and will be judged itself. A row that was never answered is put into `lost`, and held against the first fault only.
    """
    records, lane = found.records, found.records.lanes[found.lane]
    if fault.fired_at is None or healed is None:
        found.doubt(f"{fault.name} was not seen to {'fire' if fault.fired_at is None else 'be over'} for this lane")
        return None
    budget, until = records.run.recovery_budget_s, min(records.end, next_fault)
    times = _Times()
    for submission in _waiting(lane, fault.fired_at, healed, records.run.setting("window_s")):
        if submission.row not in lost:
            _measure(found, submission, healed, until, times)
    lost.update(times.never)
    if not times.answered and not times.never and fault.kind is FaultClass.OUTAGE:
        found.doubt(f"no row of this lane was waiting when {fault.name} was over")
    stable, last = _stable_at(lane, healed, until, budget)
    if stable is None and until < healed + budget:
        found.doubt(f"the lane was not stable yet when the records end, {until - healed:.1f} s after the API's return")
    elif stable is None:
        found.absence("audit", last, None, "the lane never became stable: this row waited to the end")
    elif stable is not None and stable > budget:
        what = f"the lane became stable only {stable:.1f} s after the API's return, when this row was answered"
        found.offence(last, healed + stable, what)
    return {
        "rows": len(times.answered) + len(times.never),
        "slowest_s": round(max(times.answered.values()), 3) if times.answered else None,
        "budget_s": budget,
        "median_s": round(median(times.answered.values()), 3) if times.answered else None,
        "stable_at_s": None if stable is None else round(stable, 3),
        "never_answered": len(times.never),
        "answered_not_placed": len(times.apart),
        "slowest_placement_s": max((round(s, 3) for s in times.apart.values() if s is not None), default=None),
        "startup_403s": _startup_403s(lane, fault, healed),
    }


def _waiting(lane: Lane, fired: float, healed: float, window_s: float) -> list[Submission]:
    """Rows that were due between fired and healed. One that had been due before and was not answered when the fault
    fired is due in the outage just the same. One whose window had passed before the return is not: whether it failed as
    it should is for `window` to say."""
    rows = []
    for submission in lane.by_row.values():
        if submission.row is None or submission.due >= healed:
            continue
        claim = lane.rows.get(submission.row)
        if submission.due + window_s <= healed and claim is not None and claim.reason.startswith(EVER_UNAVAILABLE):
            continue
        before = submission.due < fired
        if before and any(answered.t < fired for answered in lane.answers(submission.row)):
            continue
        rows.append(submission)
    return rows


def _measure(found: Finding, submission: Submission, healed: float, until: float, times: _Times) -> None:
    row, lane, budget = submission.row, found.records.lanes[found.lane], found.records.run.recovery_budget_s
    assert row is not None
    answered = _first_answer(lane, row, healed)
    if answered is None or answered.t > until:
        if until < healed + budget:
            found.doubt(f"row {row} had no answer yet when {until - healed:.1f} s of the recovery were on record")
            return
        times.never.append(row)
        claim = lane.rows.get(row)
        failed = f" (it says: {claim.reason})" if claim is not None and claim.state == "failed" else ""
        found.absence("audit", row, submission.due, f"due at {submission.due:.1f} s and never answered{failed}")
        return
    took = max(0.0, answered.t - healed)
    times.answered[row] = took
    if answered.answer is not Answer.PLACED:
        placed = lane.placed_at(row)
        times.apart[row] = None if placed is None else max(0.0, placed - healed)
    if took > budget:
        what = f"answered {took:.1f} s after the API's return, {budget:g} s are allowed"
        found.offence(row, answered.t, what, answered_after_s=round(took, 3), due=submission.due)


def _first_answer(lane: Lane, row: int, healed: float) -> Answered | None:
    """The row's first answer that no later Unavailable before the return made void; a placement is never void."""
    held = max((t for t in lane.unavailable_at(row) if t < healed), default=float("-inf"))
    answers = lane.answers(row)
    return next((a for a in answers if a.t >= held or a.answer is Answer.PLACED), None)


def _stable_at(lane: Lane, healed: float, until: float, bound: float) -> tuple[float | None, int | None]:
    """Seconds from healed to the moment from which on no never-answered row is overdue by more than `bound`, and the
    row that was the last to be; None if that moment never came. Rows that failed do not wait any more:
    `no_lost_task` speaks of them."""
    stable, last = healed, None
    for row, submission in lane.by_row.items():
        late = submission.due + bound
        if late >= until:
            continue
        first = next(iter(lane.answers(row)), None)
        if first is not None and first.t <= until:
            if first.t > max(late, stable):
                stable, last = first.t, row
        elif row not in lane.rows or lane.rows[row].state != "failed":
            return None, row
    return stable - healed, last


def _startup_403s(lane: Lane, fault: Fault, healed: float) -> int:
    """Creates that a restarted apiserver forbade before it knew its own rules; by R3 each is a rejection."""
    if fault.kind is not FaultClass.OUTAGE:
        return 0
    begun = fault.heal_began if fault.heal_began is not None else healed
    return sum(create.forbidden and begun <= create.ended <= healed + STARTUP_S for create in lane.all_creates())
