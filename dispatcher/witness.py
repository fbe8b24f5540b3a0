"""What is told of every settled offer: metrics, the API's health, and the outcome log that the suite reads."""

import json
import os
from pathlib import Path

import structlog

from dispatcher import store
from dispatcher.outage import ApiHealth
from dispatcher.rules import Decision, Disposition, Fail, Outcome, Place, ReOffer
from dispatcher.telemetry import Metrics

log = structlog.get_logger(__name__)


class OutcomeLog:
    """One JSON line an offer, each in one write on a file opened for appending: a crash tears no other line."""

    def __init__(self, path: Path) -> None:
        """:raises OSError: the file cannot be opened."""
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, line: dict[str, object]) -> None:
        os.write(self._fd, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


class Observer:
    """The `Witness` of the dispatch paths. It decides nothing."""

    def __init__(
        self, *, metrics: Metrics, health: ApiHealth, replica: str, outcomes: OutcomeLog | None = None
    ) -> None:
        self._metrics = metrics
        self._health = health
        self._replica = replica
        self._outcomes = outcomes

    def offered(self, claim: store.Claim, outcome: Outcome, decision: Decision, settled: bool) -> None:
        verdict = outcome.verdict
        was_down = self._health.down
        self._health.note(claim.id, verdict.disposition, verdict.cause, outcome.ended_at)
        if self._health.down != was_down:
            log.warning("api.down" if self._health.down else "api.back", cause=verdict.cause)
        self._count(outcome, decision, settled)
        if self._outcomes is not None:
            self._outcomes.write(self._line(claim, outcome, decision, settled))
        log.info(
            "offer",
            row=claim.id,
            epoch=claim.epoch,
            disposition=verdict.disposition,
            cause=verdict.cause,
            rule=verdict.rule,
            decision=_name(decision),
            settled=settled,
            pod=verdict.pod_name,
        )

    def _count(self, outcome: Outcome, decision: Decision, settled: bool) -> None:
        verdict, metrics = outcome.verdict, self._metrics
        metrics.creates.labels(verdict.disposition, metrics.cause(verdict.cause)).inc()
        if verdict.disposition is not Disposition.DEFERRED:
            seconds = (outcome.ended_at - outcome.started_at).total_seconds()
            metrics.create_seconds.labels(verdict.disposition).observe(max(0.0, seconds))
        if verdict.may_exist and verdict.disposition is not Disposition.PLACED:
            metrics.ambiguous.inc()
        if not settled:
            metrics.lost_races.labels(_name(decision)).inc()
        metrics.api_down.set(self._health.down)

    def _line(self, claim: store.Claim, outcome: Outcome, decision: Decision, settled: bool) -> dict[str, object]:
        verdict = outcome.verdict
        next_offer = decision.next_offer_at.timestamp() if isinstance(decision, ReOffer) else None
        placed = isinstance(decision, Place)
        attempts = claim.row.dispatch_attempts if isinstance(decision, Place) else decision.dispatch_attempts
        since = None if isinstance(decision, Place) else decision.dispatch_unavailable_since
        return {
            "wall": outcome.ended_at.timestamp(),
            "row": claim.id,
            "epoch": claim.epoch,
            "try": claim.try_number,
            "replica": self._replica,
            "disposition": verdict.disposition,
            "cause": verdict.cause,
            "may_exist": verdict.may_exist or placed,
            "started": outcome.started_at.timestamp(),
            "ended": outcome.ended_at.timestamp(),
            "settled": settled,
            "next_offer": next_offer,
            "attempts": attempts,
            "unavailable_since": since.timestamp() if since is not None else None,
            "decision": _name(decision),
        }


def _name(decision: Decision) -> str:
    match decision:
        case Place():
            return "place"
        case ReOffer():
            return "re-offer"
        case Fail():
            return "fail"
