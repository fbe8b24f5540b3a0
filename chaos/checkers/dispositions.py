"""Is what the dispatcher says of its creates what really happened to them, and was it billed rightly?

Every line of its outcome log (a claim) is held against the audit log, create by create (`contradiction`); what was
billed is held against both (`billing`); and each fault must have led to what the rules say (`expectations`).
"""

from chaos.checkers.base import CheckResult, Finding
from chaos.checkers.billing import check_attempts, check_retries
from chaos.checkers.contradiction import contradiction
from chaos.checkers.expectations import expectation_of
from chaos.events import CreateClaim, Fault
from chaos.records import Lane, Records


class Dispositions:
    """Each injected fault led to the disposition and the cause that the rules give it, and no create was called
    something else than what it was answered. Only rejections spent attempts, and no retry of the user's was billed."""

    name = "dispositions"

    def check(self, records: Records, lane: str) -> CheckResult:
        found, of = Finding(records, lane), records.lanes[lane]
        found.need("history", "audit")
        claims = list(of.all_claims())
        found.figures = {"offers": len(claims), "unwitnessed": 0, "causes": _causes(claims)}
        if not claims:
            found.doubt("the dispatcher's outcome log is not on record")
        creates = {(create.row, create.epoch): create for create in of.all_creates()}
        for claim in claims:
            wrong = contradiction(found, of, claim, creates.get((claim.row, claim.epoch)))
            if wrong is not None:
                found.offence(claim.row, claim.ended, wrong, epoch=claim.epoch, cause=claim.cause)
        for fault in records.faults_of(lane):
            _led_to_what_it_must(found, of, fault)
        check_attempts(found, of)
        check_retries(found, of)
        return found.result()


def _causes(claims: list[CreateClaim]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for claim in claims:
        label = f"{claim.disposition}: {claim.cause}" if claim.cause else claim.disposition
        counts[label] = counts.get(label, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:12])


def _led_to_what_it_must(found: Finding, lane: Lane, fault: Fault) -> None:
    """At least one offer under the fault had the disposition and the cause of the table; else it was not met."""
    expected = expectation_of(fault)
    if expected is None or fault.fired_at is None:
        return
    begin, end = fault.active()
    under = [claim for claim in lane.all_claims() if begin <= claim.ended and claim.started <= end]
    control = not lane.info.decides
    words = (
        {expected.disposition, "Rejected"}
        if control and expected.disposition == "Unavailable"
        else {expected.disposition}
    )
    met = [
        claim
        for claim in under
        if claim.disposition in words
        and expected.cause.search(claim.cause)
        and expected.may_exist in (None, claim.may_exist)
    ]
    found.figures.setdefault("met", {})[fault.name] = len(met)
    if not met:
        seen = ", ".join(sorted({f"{c.disposition} ({c.cause})" for c in under})[:4]) or "no offer at all"
        found.doubt(f"no offer under {fault.name} was {expected.disposition} as the table has it; seen: {seen}")
