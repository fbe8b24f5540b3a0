"""One create, as the dispatcher calls it, held against what the apiserver did with it.

    the apiserver answered ...        the dispatcher may say
    201                               Placed; or Unavailable, if it says that the answer was lost and the pod may exist
    Unavailable by R1                 Unavailable
    Backpressure by R1, R2            Backpressure; or Unavailable, if the answer was lost
    Rejected by R3                    Rejected; or Unavailable, if the answer was lost
    nothing (it never saw the create) Unavailable or Deferred

An answer is lost for a reason: a fault that was at work, or the client's own deadline. Under `attempts-only` (the
control) Unavailable is settled as Rejected: there both words are right for it. A create that was under way when an
apiserver died may be missing in the audit log; such are left out.
"""

import re

from chaos.audit import Answer, Create
from chaos.checkers.base import Finding
from chaos.events import CreateClaim, FaultClass
from chaos.records import Lane

ANSWERED_CAUSE = re.compile(r"^([1-5]\d\d)\b")
"""A cause that begins with an HTTP code says that an answer was read."""
UNCALLABLE = "webhook unreachable"
"""R4's word for it."""
EDGE_S = 3.0
"""Around the start and the end of an outage an apiserver may answer, or commit, what it did not live to log, and
connections that were cut may show it later."""


def contradiction(found: Finding, lane: Lane, claim: CreateClaim, create: Create | None) -> str | None:
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
        if not claim.may_exist:
            return f"its pod was made (201), and the outcome ({claim.cause}) rules that out"
        if not _may_be_lost(found, claim):
            found.doubt(f"row {claim.row}: its answer was lost ({claim.cause}) at a time when no fault was at work")
        return None
    if said == create.answer.value or (counted and create.answer is Answer.UNAVAILABLE):
        if code is not None and int(code[1]) != create.code:
            return f"its cause is {claim.cause}, and the apiserver answered {create.code}"
        return _another_cause(claim, create, heard=code is not None or "webhook" in claim.cause)
    not_heard = (said == "Unavailable" or counted) and code is None and claim.cause != UNCALLABLE
    if not_heard and _may_be_lost(found, claim):
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


def _may_be_lost(found: Finding, claim: CreateClaim) -> bool:
    """Whether something explains that the answer never arrived: a fault at work, or the client's own deadline."""
    run = found.records.run
    if claim.ended - claim.started >= run.setting("create_deadline_s") - run.setting("tick_s"):
        return True
    faults = found.records.faults_of(found.lane, FaultClass.OUTAGE, FaultClass.ANSWER_LOST)
    return any(f.active(EDGE_S)[0] <= claim.ended and claim.started <= f.active(EDGE_S)[1] for f in faults)


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
