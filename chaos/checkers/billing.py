"""What an outage may cost a task: attempts only for rejections (R6), the user's retries never (R7)."""

from chaos.audit import Answer
from chaos.checkers.base import Finding
from chaos.events import CreateClaim
from chaos.records import Lane


def check_attempts(found: Finding, lane: Lane) -> None:
    """Follow each row's claims and count its rejections; the attempts it says it has spent must be those.

    A claim may tell the count before or after its own settlement, so both are right; a later try starts anew. The
    control bills Unavailable too.
    """
    billed = {"Rejected"} if lane.info.decides else {"Rejected", "Unavailable"}
    spent_in_all = 0
    for row, claims in lane.claims.items():
        spent, of_try = 0, 1
        for claim in claims:
            if claim.try_number != of_try:
                spent, of_try = 0, claim.try_number
            before = spent
            spent += claim.disposition in billed and claim.settled
            spent_in_all += spent - before
            if claim.attempts is not None and claim.attempts > spent:
                what = f"{claim.attempts} attempts are billed after {_offers(spent)}; {_last(claim)}"
                found.offence(row, claim.ended, what, epoch=claim.epoch)
                break
            if claim.attempts is not None and claim.attempts < before:
                what = f"only {claim.attempts} attempts are counted after {_offers(before)}: the budget has no end"
                found.offence(row, claim.ended, what, epoch=claim.epoch)
                break
    rejected = sum(create.answer is Answer.REJECTED for create in lane.all_creates())
    found.figures["attempts_spent"] = spent_in_all
    found.figures["rejected_by_api"] = rejected


def _offers(count: int) -> str:
    return f"{count} rejection{'' if count == 1 else 's'}"


def _last(claim: CreateClaim) -> str:
    return f"the last offer was {claim.disposition} ({claim.cause})"


def check_retries(found: Finding, lane: Lane) -> None:
    """A new try needs a failure of the user's own code; a dispatch that failed ends the row with the try it was in."""
    for row, claim in lane.rows.items():
        failed = {one.try_number for one in lane.executions.get(row, ()) if one.outcome == "failure"}
        asked = {create.try_number for create in lane.creates.get(row, ()) if create.try_number is not None}
        said = {claim.try_number, *(one.try_number for one in lane.claims.get(row, ()))}
        cleared = bool(lane.clears.get(row))
        for tried in sorted(asked | said):
            if tried > 1 and tried - 1 not in failed and not cleared:
                t = next((c.started for c in lane.creates.get(row, ()) if c.try_number == tried), None)
                what = f"try {tried} began, and the user's code never failed in try {tried - 1}: a retry was billed"
                found.absence("ledger", row, t, what, try_number=tried)
                break
        if claim.dispatch_failed and claim.max_tries > claim.try_number:
            what = f"it failed as dispatch_failed with max_tries {claim.max_tries} in try {claim.try_number} (R7)"
            found.offence(row, None, what)
        elif not claim.dispatch_failed and not cleared and claim.max_tries < 1 + claim.retries:
            what = f"its retries were lowered to {claim.max_tries - 1} of {claim.retries}, and no dispatch of it failed"
            if claim.state != "failed":  # other terminal failures (infra, cancel) lower it too
                found.offence(row, None, what)
