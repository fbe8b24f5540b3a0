"""Is what the dispatcher says of its creates what really happened to them, and was it billed rightly?

Every line of its outcome log (a claim) is held against the audit log, create by create:

    the apiserver answered ...        the dispatcher may say
    201                               Placed; or Unavailable, if it says that the answer was lost and the pod may exist
    Unavailable by R1                 Unavailable
    Backpressure by R1, R2            Backpressure; or Unavailable, if the answer was lost
    Rejected by R3                    Rejected; or Unavailable, if the answer was lost
    nothing (it never saw the create) Unavailable or Deferred

Under `attempts-only` (the control) Unavailable is settled as Rejected: there both words are right for it, and it is
billed. A create that was under way when an apiserver died may be missing in the audit log; such are left out.
"""

import re

from chaos.audit import Answer, Create
from chaos.checkers.base import CheckResult, Finding
from chaos.checkers.billing import check_attempts, check_retries
from chaos.checkers.expectations import expectation_of
from chaos.events import CreateClaim, Fault, FaultClass
from chaos.records import Lane, Records

ANSWERED_CAUSE = re.compile(r"^([1-5]\d\d)\b")
"""A cause that begins with an HTTP code says that an answer was read."""
UNCALLABLE = "webhook unreachable"
"""R4's word for it."""
EDGE_S = 3.0
"""Around the start and the end of an outage an apiserver may answer, or commit, what it did not live to log."""


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
            wrong = _contradiction(found, of, claim, creates.get((claim.row, claim.epoch)))
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


def _contradiction(found: Finding, lane: Lane, claim: CreateClaim, create: Create | None) -> str | None:
    """What is wrong with the claim, in words; None if the witnesses bear it out."""
    said = claim.disposition
    counted = not lane.info.decides and said == "Rejected"  # the control's word for Unavailable
    if create is None:
        if said in ("Unavailable", "Deferred") or counted:
            return None
        if _near_an_edge(found, claim):
            found.figures["unwitnessed"] += 1
            return None
        if not found.records.damage["audit"].complete:
            return None  # `need` has said so
        return f"called {said} ({claim.cause or 'no cause'}), and the apiserver never saw the create"
    code = ANSWERED_CAUSE.match(claim.cause)
    if create.answer is Answer.PLACED:
        if said == "Placed":
            return None
        if said != "Unavailable" and not counted:
            return f"called {said} ({claim.cause}), and the apiserver had made the pod (201)"
        return None if claim.may_exist else f"its pod was made (201), and the outcome ({claim.cause}) rules that out"
    if said == create.answer.value or (counted and create.answer is Answer.UNAVAILABLE):
        if code is not None and int(code[1]) != create.code:
            return f"its cause is {claim.cause}, and the apiserver answered {create.code}"
        return _another_cause(claim, create, heard=code is not None or "webhook" in claim.cause)
    if said == "Unavailable" and code is None and claim.cause != UNCALLABLE:
        return None  # the answer was lost on its way
    if counted and code is None:
        return None
    return f"called {said} ({claim.cause}), and the apiserver answered {_answer(create)}"


def _another_cause(claim: CreateClaim, create: Create, *, heard: bool) -> str | None:
    """A webhook's part in it has to be named, because who is to be asked depends on it. Where the cause tells of no
    answer (`heard`), the answer was lost, and with it who gave it."""
    if create.denied and "denied" not in claim.cause:
        return f"its cause is {claim.cause}, and a webhook denied it: {create.message[:120]}"
    if create.uncallable and heard and claim.cause != UNCALLABLE:
        return f"its cause is {claim.cause}, and the webhook could not be called: {create.message[:120]}"
    return None


def _answer(create: Create) -> str:
    return f"{create.code} {create.reason}".strip() + f", which is {create.answer}"


def _near_an_edge(found: Finding, claim: CreateClaim) -> bool:
    """Whether the create was under way when an outage began or ended."""
    for fault in found.records.faults_of(found.lane, FaultClass.OUTAGE):
        begin, end = fault.active(EDGE_S)
        if begin <= claim.ended and claim.started <= end:
            held_from, held_until = fault.biting()
            if not (held_from + EDGE_S < claim.started and claim.ended < held_until - EDGE_S):
                return True
    return False


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
