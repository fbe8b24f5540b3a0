"""Carry one row through offers on paper: each outcome is decided on, and the next offer comes when it says."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dispatcher.rules import Decision, Disposition, Outcome, Policy, ReOffer, Row, Verdict, decide

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def since_t0(moment: datetime) -> float:
    return (moment - T0).total_seconds()


def unavailable(cause: str = "503 ServiceUnavailable") -> Verdict:
    return Verdict(Disposition.UNAVAILABLE, cause, "R1", may_exist=True)


def backpressure(retry_after_s: float | None = None) -> Verdict:
    return Verdict(Disposition.BACKPRESSURE, "429 TooManyRequests", "R1", retry_after_s=retry_after_s)


def rejected(cause: str = "422 Invalid", detail: str = "") -> Verdict:
    return Verdict(Disposition.REJECTED, cause, "R3", detail=detail)


DEFERRED = Verdict(Disposition.DEFERRED, "client rate limiter", "R8")
PLACED = Verdict(Disposition.PLACED, "201 Created", "R1", may_exist=True, pod_name="pod", pod_uid="uid")


def outcome(verdict: Verdict, started_s: float, took_s: float = 0.0) -> Outcome:
    return Outcome(verdict, at(started_s), at(started_s + took_s))


@dataclass(frozen=True, slots=True)
class Offer:
    """One create of a row: when it began, what was decided on its outcome, the row after it."""

    at_s: float
    decision: Decision
    row: Row


Api = Callable[[float], tuple[Verdict, float]]
"""What a create that starts now (seconds since T0) gets, and how long it takes."""


def offers(
    api: Api, *, first_s: float = 0.0, policy: Policy | None = None, most: int = 200, wait_s: float = 0.0
) -> Iterator[Offer]:
    """All offers of a row that is due at `first_s`, until it is placed, fails, or `most` were made.

    :param wait_s: what a claimed row waits for its tick, buffer and limiter, each time.
    """
    policy = policy or Policy()
    row, now_s = Row(), first_s
    for _ in range(most):
        verdict, took_s = api(now_s)
        decision = decide(row, outcome(verdict, now_s, took_s), policy)
        if not isinstance(decision, ReOffer):
            yield Offer(now_s, decision, row)
            return
        row = Row(decision.dispatch_attempts, decision.dispatch_unavailable_since)
        yield Offer(now_s, decision, row)
        now_s = since_t0(decision.next_offer_at) + wait_s
