"""What follows from the outcome of a create: the decision, as pure functions.

No clock, no database, no client: `decide(row, outcome, policy)` returns a frozen value and its caller acts.
Rule numbers (R1 …) are those of the design; they are quoted in the tests.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import assert_never


class Disposition(StrEnum):
    """What the outcome of a create says about the task (R1–R3).

    | | means | spends an attempt | `dispatch_unavailable_since` |
    |---|---|---|---|
    | placed | the API accepted the create | – | cleared |
    | unavailable | the API could not take the request | no | stamped if null, else kept |
    | backpressure | throttled, or a quota is used up | no | cleared: the API answered |
    | deferred | the client's own limiter refused; nothing was sent | no | kept |
    | rejected | the API understood and refused | yes | cleared: the API answered |
    """

    PLACED = "placed"
    UNAVAILABLE = "unavailable"
    BACKPRESSURE = "backpressure"
    DEFERRED = "deferred"
    REJECTED = "rejected"


class Rank(IntEnum):
    """Who is claimed first (R18), within a rank by the oldest `next_offer_at`."""

    FIRST = 0
    """First offers, and rows whose next offer falls into the last hold of their window."""
    HELD = 1
    """Rows that ride an outage out or back off."""
    REFUSED = 2
    """Rows that a quota or a throttle refused: they never hold up another namespace."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an answer, or the lack of one, is classified (`dispatcher.errors`)."""

    disposition: Disposition
    cause: str
    """Short and typed: `503 ServiceUnavailable`, `connection refused` (R4)."""
    rule: str
    """The rule that decided, for `explain` and logs."""
    may_exist: bool = False
    """False only where the request was provably not sent, or the API said that it refused it (R3)."""
    detail: str = ""
    """The API's own words in one line, for the operator; no decision reads them."""
    retry_after_s: float | None = None
    pod_name: str | None = None
    pod_uid: str | None = None
    stale_credentials: bool = False
    """A 401: read token and certificates anew before the next create (R3, R26)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict with the start and the end of its create, both on the dispatcher's clock (R23)."""

    verdict: Verdict
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Row:
    """What a decision needs to know of a claimed row."""

    dispatch_attempts: int = 0
    dispatch_unavailable_since: datetime | None = None
    rank: Rank = Rank.FIRST


@dataclass(frozen=True, slots=True)
class Policy:
    """The constants of R4–R6, in seconds; defaults are production's."""

    window_s: float = 900
    hold_min_s: float = 5
    hold_max_s: float = 60
    offer_lead_s: float = 3
    attempts: int = 6
    backoff_s: float = 5
    backpressure_delay_s: float = 10
    backpressure_max_s: float = 60
    tick_s: float = 1
    unavailable_spends_attempts: bool = False
    """The rule from before the decision: Unavailable is settled as Rejected. The suite's control lane."""


@dataclass(frozen=True, slots=True)
class Place:
    """The pod stands: record it, clear the outage."""

    pod_name: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class ReOffer:
    """Back to scheduled under a new epoch, not before `next_offer_at`."""

    next_offer_at: datetime
    dispatch_attempts: int
    dispatch_unavailable_since: datetime | None
    rank: Rank
    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Terminal: `dispatch_failed`, the user's retries unbilled but spent (R7)."""

    reason: str
    dispatch_attempts: int
    dispatch_unavailable_since: datetime | None


Decision = Place | ReOffer | Fail


def decide(row: Row, outcome: Outcome, policy: Policy) -> Decision:
    """Decide what follows from an outcome (R4–R8). Pure and exhaustive."""
    verdict = outcome.verdict
    match verdict.disposition:
        case Disposition.PLACED:
            assert verdict.pod_name is not None  # R1: Placed is a whole 201 with a Pod
            assert verdict.pod_uid is not None
            return Place(verdict.pod_name, verdict.pod_uid)
        case Disposition.UNAVAILABLE:
            if policy.unavailable_spends_attempts:
                return _spend_an_attempt(row, outcome, policy)
            return _ride_out(row, outcome, policy)
        case Disposition.BACKPRESSURE:
            return _wait_for_room(row, outcome, policy)
        case Disposition.DEFERRED:
            return _next_tick(row, outcome, policy)
        case Disposition.REJECTED:
            return _spend_an_attempt(row, outcome, policy)
        case _:  # pragma: no cover
            assert_never(verdict.disposition)


def hold_s(outage_age_s: float, policy: Policy) -> float:
    """R5: as long as the outage has lasted, at least `hold_min_s`, at most `hold_max_s - offer_lead_s`.

    That doubles the interval between offers without a counter: 0, 5, 10, 20, 40, 80, 137, 194 … s.
    """
    return min(policy.hold_max_s - policy.offer_lead_s, max(policy.hold_min_s, outage_age_s))


def backoff_s(attempts: int, policy: Policy) -> float:
    """R6: 5, 10, 20, 40, 80 s after the first, second … rejection."""
    return float(policy.backoff_s * 2 ** (attempts - 1))


def window_is_spent(since: datetime | None, started_at: datetime, policy: Policy) -> bool:
    """R4: by the *start* of the create, so that one that began within the window may hang past its end."""
    return since is not None and (started_at - since).total_seconds() >= policy.window_s


def would_fail_at(since: datetime, policy: Policy) -> datetime:
    """The earliest start of a create whose Unavailable fails the row (R4)."""
    return since + timedelta(seconds=policy.window_s)


def go_duration(seconds: float) -> str:
    """A duration as Go writes one, in whole seconds rounded down: `15m4s`, `1h0m0s`, `0s` (R4)."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{left}s"
    return f"{minutes}m{left}s" if minutes else f"{left}s"


def _ride_out(row: Row, outcome: Outcome, policy: Policy) -> Decision:
    cause = outcome.verdict.cause
    since = row.dispatch_unavailable_since or outcome.ended_at  # the first *failure* starts the window (R4)
    age_s = (outcome.ended_at - since).total_seconds()
    if window_is_spent(row.dispatch_unavailable_since, outcome.started_at, policy):
        return Fail(
            f"dispatch_failed: Kubernetes API unavailable for {go_duration(age_s)}: {cause}",
            row.dispatch_attempts,
            since,
        )
    # R5: counted from the start of the failed create, so that one that hung until its deadline does not push
    # the recovery past a minute; never sooner than the shortest hold after it failed.
    next_offer_at = max(
        outcome.started_at + timedelta(seconds=hold_s(age_s, policy)),
        outcome.ended_at + timedelta(seconds=policy.hold_min_s),
    )
    last_hold_begins = would_fail_at(since, policy) - timedelta(seconds=policy.hold_max_s)
    return ReOffer(
        next_offer_at,
        row.dispatch_attempts,
        since,
        Rank.FIRST if next_offer_at >= last_hold_begins else Rank.HELD,
        f"held: Kubernetes API unavailable: {cause}",
    )


def _wait_for_room(row: Row, outcome: Outcome, policy: Policy) -> ReOffer:
    wait_s = min(max(policy.backpressure_delay_s, outcome.verdict.retry_after_s or 0.0), policy.backpressure_max_s)
    return ReOffer(
        outcome.ended_at + timedelta(seconds=wait_s),
        row.dispatch_attempts,
        None,  # the API answered: the outage is over (R8)
        Rank.REFUSED,
        f"held: backpressure: {outcome.verdict.cause}",
    )


def _next_tick(row: Row, outcome: Outcome, policy: Policy) -> ReOffer:
    return ReOffer(
        outcome.ended_at + timedelta(seconds=policy.tick_s),
        row.dispatch_attempts,
        row.dispatch_unavailable_since,  # nothing was sent, so nothing was learnt (R8)
        row.rank,
        f"held: deferred: {outcome.verdict.cause}",
    )


def _spend_an_attempt(row: Row, outcome: Outcome, policy: Policy) -> Decision:
    attempts = row.dispatch_attempts + 1
    verdict = outcome.verdict
    cause = f"{verdict.cause}: {verdict.detail}" if verdict.detail else verdict.cause
    if attempts >= policy.attempts:
        return Fail(f"dispatch_failed: rejected {attempts} times: {cause}", attempts, None)
    return ReOffer(
        outcome.ended_at + timedelta(seconds=backoff_s(attempts, policy)),
        attempts,
        None,  # the API answered: the outage is over (R8)
        Rank.HELD,
        f"held: rejected {attempts} of {policy.attempts} times: {cause}",
    )
