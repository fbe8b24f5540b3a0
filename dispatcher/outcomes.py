"""What is told of every offer: the log line, the metrics, the API's health, and the outcome log of the suite."""

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import orjson
import structlog

from dispatcher import store
from dispatcher.outage import ApiHealth
from dispatcher.rules import Decision, Disposition, Fail, Outcome, Place, ReOffer

log = structlog.get_logger(__name__)

Listener = Callable[[store.Claim, Outcome, Decision, bool], None]


class OutcomeLog:
    """One JSON line an offer, appended whole with one write. It is the dispatcher's *claim* about itself: the
    suite compares it with the faults, the audit log and the ledger."""

    def __init__(self, path: Path, replica: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._replica = replica

    def __call__(self, claim: store.Claim, outcome: Outcome, decision: Decision, settled: bool) -> None:
        verdict = outcome.verdict
        line = {
            "wall": outcome.ended_at.timestamp(),
            "row": claim.id,
            "epoch": claim.epoch,
            "try": claim.try_number,
            "replica": self._replica,
            "disposition": verdict.disposition,
            "cause": verdict.cause,
            "detail": verdict.detail,
            "may_exist": verdict.may_exist,
            "started": outcome.started_at.timestamp(),
            "ended": outcome.ended_at.timestamp(),
            "settled": settled,
            **_decided(claim, decision),
        }
        os.write(self._file, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


class Outcomes:
    """The witness of `dispatch.Offers`: keeps the API's health and passes each offer on."""

    def __init__(self, *listeners: Listener) -> None:
        self.health = ApiHealth()
        self._listeners = listeners

    def offered(self, claim: store.Claim, outcome: Outcome, decision: Decision, settled: bool) -> None:
        verdict = outcome.verdict
        was_down = self.health.down
        self.health.note(claim.id, verdict.disposition, verdict.cause, outcome.ended_at)
        if self.health.down != was_down:
            log.warning("api.down" if self.health.down else "api.back", cause=verdict.cause)
        level = log.debug if verdict.disposition is Disposition.PLACED else log.info
        level(
            "offer",
            row=claim.id,
            epoch=claim.epoch,
            disposition=verdict.disposition,
            cause=verdict.cause,
            may_exist=verdict.may_exist,
            settled=settled,
            reason=None if isinstance(decision, Place) else decision.reason,
        )
        for listener in self._listeners:
            listener(claim, outcome, decision, settled)


def _decided(claim: store.Claim, decision: Decision) -> dict[str, object]:
    match decision:
        case Place():
            return {
                "decision": "place",
                "next_offer": None,
                "attempts": claim.row.dispatch_attempts,
                "unavailable_since": None,
            }
        case ReOffer():
            return {
                "decision": "re-offer",
                "next_offer": decision.next_offer_at.timestamp(),
                "attempts": decision.dispatch_attempts,
                "unavailable_since": _unix(decision.dispatch_unavailable_since),
            }
        case Fail():
            return {
                "decision": "fail",
                "next_offer": None,
                "attempts": decision.dispatch_attempts,
                "unavailable_since": _unix(decision.dispatch_unavailable_since),
            }


def _unix(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
