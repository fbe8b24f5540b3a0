"""Did throttling and a used-up quota only put tasks off?

429 and a used-up quota are answers that say "not now" (R1, R2): they spend no attempt, they end an outage (the window
is cleared), and the row is offered again for ever, after the delay or `Retry-After`, whichever is longer, capped at a
minute. What was answered is the audit log's word, what became of the row the dispatcher's own.
"""

from chaos.audit import Answer
from chaos.checkers.base import CheckResult, Finding, not_applicable
from chaos.events import CreateClaim, Fault, FaultClass
from chaos.records import Lane, Records

ROUNDING_S = 0.05


class Backpressure:
    """A task that the API put off keeps its attempts, loses the window it may have been in, is offered again no sooner
    than the delay and no later than a minute, and is placed soon after there is room."""

    name = "backpressure"

    def check(self, records: Records, lane: str) -> CheckResult:
        faults = records.faults_of(lane, FaultClass.PRESSURE)
        if not faults:
            return not_applicable("nothing throttled this lane, and no quota was used up")
        found, of = Finding(records, lane), records.lanes[lane]
        found.need("history", "audit")
        found.figures = {
            "put_off_creates": sum(create.answer is Answer.BACKPRESSURE for create in of.all_creates()),
            "put_off_rows": 0,
            "most_offers": 0,
            "windows_cleared": 0,
            "slowest_placement_s": None,
            "budget_s": records.run.recovery_budget_s,
        }
        for row, claims in of.claims.items():
            _settled_as_it_should(found, of, row, claims)
        least = int(records.run.budgets.get("windows_cleared", 0))
        if found.figures["windows_cleared"] < least:
            found.doubt(
                f"only {found.figures['windows_cleared']} rows were put off while their window ran; at least {least} "
                "are needed to show that it is cleared"
            )
        for fault in faults:
            _placed_when_there_is_room(found, of, fault)
        return found.result()


def _settled_as_it_should(found: Finding, lane: Lane, row: int, claims: list[CreateClaim]) -> None:
    put_off = [claim for claim in claims if claim.disposition == "Backpressure" and claim.settled]
    found.figures["put_off_rows"] += bool(put_off)
    found.figures["most_offers"] = max(found.figures["most_offers"], len(put_off))
    run, since = found.records.run, None
    soonest, latest = run.setting("backpressure_delay_s"), run.setting("backpressure_max_s")
    for claim in claims:
        if claim.disposition == "Backpressure" and claim.settled:
            if claim.unavailable_since is not None:
                what = f"put off ({claim.cause}), and its window still runs since {claim.unavailable_since:.1f} s (R8)"
                found.offence(row, claim.ended, what, epoch=claim.epoch)
            found.figures["windows_cleared"] += since is not None and claim.unavailable_since is None
            if claim.next_offer is None:
                found.offence(row, claim.ended, f"put off ({claim.cause}), and not to be offered again")
            elif not soonest - ROUNDING_S <= claim.next_offer - claim.ended <= latest + ROUNDING_S:
                what = (
                    f"put off for {claim.next_offer - claim.ended:.2f} s ({claim.cause}); the delay is {soonest:g} s, "
                    f"the longest wait {latest:g} s"
                )
                found.offence(row, claim.ended, what, epoch=claim.epoch)
        since = claim.unavailable_since


def _placed_when_there_is_room(found: Finding, lane: Lane, fault: Fault) -> None:
    """Rows that were put off, and not placed before the end of it, are placed within the budget after it. When there
    was room again is the suite's own evidence: the probe's creates are not what was put off."""
    healed = fault.evidence.get("confirm_healed", {}).get("room", {}).get(lane.name)
    healed = healed if healed is not None else found.records.healed_at(fault, lane.name)
    if fault.fired_at is None or healed is None:
        found.doubt(f"{fault.name} was not seen to {'fire' if fault.fired_at is None else 'be over'} for this lane")
        return
    begin, budget = fault.active()[0], found.records.run.recovery_budget_s
    for row, creates in lane.creates.items():
        if not any(c.answer is Answer.BACKPRESSURE and begin <= c.ended and c.started <= healed for c in creates):
            continue
        placed = lane.placed_at(row)
        if placed is None:
            found.absence("audit", row, healed, "it was put off, and never placed although there was room again")
            continue
        took = max(0.0, placed - healed)
        found.figures["slowest_placement_s"] = max(round(took, 3), found.figures["slowest_placement_s"] or 0.0)
        if took > budget:
            what = f"it was put off, and placed {took:.1f} s after there was room; {budget:g} s are allowed"
            found.offence(row, placed, what)
