"""One row of a lane as the report shows it: its offers, what became of it, and its whole story in order of time.

An *offer* is one try to place a row. The dispatcher's outcome log tells of every one (a claim); the audit log tells of
those that reached the apiserver (evidence). `offers_of` lays the two side by side by epoch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from chaos.audit import Answer, Create
from chaos.events import CreateClaim
from chaos.ledger import Execution
from chaos.records import Lane
from chaos.report import human


class Outcome(StrEnum):
    """How a row came to be placed, in the words of the legend."""

    FIRST = "placed at the first offer"
    RODE_OUT = "placed after waiting out the outage"
    PUT_OFF = "placed after a refusal"
    FAILED = "failed, never placed"
    WAITING = "neither placed nor failed"


@dataclass(slots=True, frozen=True)
class Offer:
    """One create of a row. Times are seconds on the run clock."""

    epoch: int
    started: float
    ended: float
    disposition: str
    """Lower case, as the dispatcher claims it, else as the audit log tells it."""
    cause: str
    code: int | None
    """What the apiserver answered, where it was reached."""
    claimed: bool
    """The dispatcher's own log tells of it."""
    next_offer: float | None = None

    @property
    def placed(self) -> bool:
        return self.disposition == "placed"


@dataclass(slots=True)
class RowFacts:
    """What the plots need of a row."""

    lane: str
    row: int
    key: str
    due: float
    outcome: Outcome
    answered: float | None
    """Its first answered offer."""
    placed: float | None
    failed: float | None
    offers: int
    executions: list[Execution] = field(default_factory=list)

    @property
    def left(self) -> float | None:
        """When it stopped waiting for its first answer: answered or failed; None if it never did."""
        known = [t for t in (self.answered, self.failed) if t is not None]
        return min(known) if known else None

    @property
    def waited(self) -> float | None:
        """Seconds from due to placed, or to the failure; None while it still waits."""
        until = self.placed if self.placed is not None else self.failed
        return None if until is None else max(0.0, until - self.due)


def offers_of(lane: Lane, row: int) -> list[Offer]:
    """The row's offers in order of time: claims and audited creates, matched by epoch."""
    claims = lane.claims.get(row, ())
    audited = {create.epoch: create for create in lane.creates.get(row, ())}
    offers = [_from_claim(claim, audited.get(claim.epoch)) for claim in claims]
    told = {claim.epoch for claim in claims}
    offers += [_from_audit(create) for epoch, create in audited.items() if epoch not in told]
    return sorted(offers, key=lambda offer: (offer.started, offer.epoch))


def _from_claim(claim: CreateClaim, create: Create | None) -> Offer:
    code = create.code if create is not None else None
    return Offer(
        claim.epoch,
        claim.started,
        claim.ended,
        claim.disposition.lower(),
        claim.cause,
        code,
        claimed=True,
        next_offer=claim.next_offer,
    )


def _from_audit(create: Create) -> Offer:
    cause = "" if create.committed else f"{create.code} {create.reason}".strip()
    return Offer(create.epoch, create.started, create.ended, create.answer.lower(), cause, create.code, claimed=False)


def facts_of(lane: Lane) -> dict[int, RowFacts]:
    """Facts of every row that was handed in, by row id."""
    found = {}
    for row, submission in lane.by_row.items():
        offers = offers_of(lane, row)
        answers = lane.answers(row)
        placed = next((a.t for a in answers if a.answer is Answer.PLACED), None)
        executions = lane.executions.get(row, [])
        if placed is None and executions:
            placed = min((o.ended for o in offers if o.code == 201), default=executions[0].started)
        failed = _failed_at(lane, row, offers) if placed is None else None
        found[row] = RowFacts(
            lane=lane.name,
            row=row,
            key=submission.key,
            due=submission.due,
            outcome=_outcome(offers, placed, failed),
            answered=answers[0].t if answers else placed,
            placed=placed,
            failed=failed,
            offers=len(offers),
            executions=executions,
        )
    return found


def _failed_at(lane: Lane, row: int, offers: list[Offer]) -> float | None:
    claim = lane.rows.get(row)
    if claim is None or claim.state != "failed":
        return None
    return offers[-1].ended if offers else lane.by_row[row].due


def _outcome(offers: list[Offer], placed: float | None, failed: float | None) -> Outcome:
    if placed is None:
        return Outcome.WAITING if failed is None else Outcome.FAILED
    refused = [offer for offer in offers if offer.ended <= placed and not offer.placed and offer.code != 201]
    if not refused:
        return Outcome.FIRST
    # Where the apiserver was never reached the row was in the outage, whatever its lane's rule calls that.
    away = any(offer.disposition == "unavailable" or offer.code is None for offer in refused)
    return Outcome.RODE_OUT if away else Outcome.PUT_OFF


def worst(facts: Iterable[RowFacts], offending: Mapping[tuple[str, int], int], at_most: int) -> list[RowFacts]:
    """The rows to look at first: those that a checker names (in the order given), those that ran more than once, those
    that failed or still wait, then the slowest."""

    def rank(one: RowFacts) -> tuple[float, ...]:
        named = offending.get((one.lane, one.row))
        trouble = one.outcome in (Outcome.FAILED, Outcome.WAITING)
        waited = one.waited if one.waited is not None else float("inf")
        return (
            named if named is not None else float("inf"),
            -len(one.executions) if len(one.executions) > 1 else 0,
            not trouble,
            -waited,
            one.due,
        )

    return sorted(facts, key=rank)[:at_most]


@dataclass(slots=True, frozen=True)
class Moment:
    """One line of a row's story."""

    t: float
    witness: str
    what: str
    offence: bool = False

    @property
    def at(self) -> str:
        return human.precise_clock(self.t)


CLAIM = "dispatcher (claim)"
AUDIT = "audit log"
LEDGER = "ledger"
AGENT = "agent, by the node"
SUITE = "suite"


def story_of(lane: Lane, row: int, offence: tuple[float | None, str] | None = None) -> list[Moment]:
    """Everything that anybody says of a row, in order of time. `offence` is put in where it belongs."""
    moments: list[Moment] = []
    if (submission := lane.by_row.get(row)) is not None:
        moments.append(Moment(submission.submitted_at, SUITE, f"handed in as {submission.key}"))
        moments.append(Moment(submission.due, SUITE, "due"))
    moments += [Moment(claim.ended, CLAIM, _said(claim)) for claim in lane.claims.get(row, ())]
    moments += [Moment(create.ended, AUDIT, _audited(create)) for create in lane.creates.get(row, ())]
    for report in lane.reports.get(row, ()):
        who = f"(epoch {report.epoch}, nonce {report.nonce[:8]})"
        asks = "asks to run" if report.what == "running" else f"reports that it {report.what}"
        moments.append(Moment(report.sent, AGENT, f"{report.pod or 'agent'} {asks} {who}"))
        if report.accepted is not None:
            moments.append(Moment(report.accepted, AGENT, f"{report.what}: accepted {who}"))
        if report.refused is not None:
            moments.append(
                Moment(report.refused, AGENT, f"{report.what}: refused, {report.reason or 'no reason'} {who}")
            )
    for execution in lane.executions.get(row, ()):
        moments += _executed(execution)
    moments += [Moment(t, SUITE, "cleared by an operator") for t in lane.clears.get(row, ())]
    last = max((moment.t for moment in moments), default=0.0)
    if (claim := lane.rows.get(row)) is not None:
        end = f"ends as {claim.state}" + (f": {claim.reason}" if claim.reason else "")
        moments.append(Moment(last, CLAIM, end))
    if offence is not None:
        at = offence[0] if offence[0] is not None else last
        moments.append(Moment(at, "checker", offence[1], offence=True))
    return sorted(moments, key=lambda moment: (moment.t, moment.offence))


def shortened(moments: list[Moment], at_most: int = 80) -> tuple[list[Moment], int]:
    """The beginning, the end, and what is around the offence; and how many lines were left out."""
    if len(moments) <= at_most:
        return moments, 0
    third = at_most // 3
    at = next((index for index, moment in enumerate(moments) if moment.offence), len(moments) - 1)
    kept = sorted(
        {*range(third), *range(max(0, at - third // 2), min(len(moments), at + third // 2 + 1))}
        | set(range(len(moments) - third, len(moments)))
    )
    return [moments[index] for index in kept], len(moments) - len(kept)


def _said(claim: CreateClaim) -> str:
    told = f"offer, epoch {claim.epoch}: {claim.disposition}" + (f", {claim.cause}" if claim.cause else "")
    if claim.next_offer is not None:
        told += f"; next offer at {human.clock(claim.next_offer)}"
    elif claim.decision == "fail":
        told += "; the row fails"
    return told + ("" if claim.settled else "; the settlement found that somebody else was first")


def _audited(create: Create) -> str:
    pod = f", pod {create.pod_name}" if create.pod_name else ""
    why = f" {create.reason}: {create.message[:140]}" if create.reason or create.message else ""
    return f"create, epoch {create.epoch}: {create.code}{why}{pod}"


def _executed(execution: Execution) -> list[Moment]:
    who = f"(try {execution.try_number}, epoch {execution.epoch}, nonce {execution.nonce[:8]})"
    moments = [Moment(execution.started, LEDGER, f"user code starts {who}")]
    if execution.ended is not None:
        moments.append(Moment(execution.ended, LEDGER, f"user code ends with {execution.outcome} {who}"))
    if execution.exited is not None:
        gone = f"its process group is gone, exit code {execution.exit_code} (epoch {execution.epoch})"
        moments.append(Moment(execution.exited, LEDGER, gone))
    return moments
