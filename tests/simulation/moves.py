"""The independent model: which moves of a row are right, from the rules' text and the witnesses' notes alone.

It shares no code with the dispatcher. `old` and `new` are two neighbours in the history that the database's trigger
kept; every one of them has to be a move that the rules allow, with the evidence that it needs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.simulation.ground import Creation, Notes, Report
from tests.simulation.history import Row
from tests.simulation.invariants import Invariant as Must

WINDOW_S, HOLD_S, HOLD_MAX_S, LEAD_S = 900.0, 5.0, 60.0, 3.0
ATTEMPTS, BACKOFF_S = 6, 5.0
BACKPRESSURE_S, BACKPRESSURE_MAX_S = 10.0, 60.0
TICK_S, LEASE_S, PLACED_S = 1.0, 90.0, 300.0
RE_PLACE_S, RE_PLACE_MAX_S, RE_PLACES = 5.0, 300.0, 6
CLOSE = 0.002
"""Two times are the same: the dispatcher counts in microseconds, the model in floats."""

Complaint = tuple[Must, str]
_PROTECTED: tuple[tuple[str, Must], ...] = (
    ("epoch", Must.EPOCH),
    ("try_number", Must.USER_RETRIES),
    ("max_tries", Must.USER_RETRIES),
    ("retries", Must.USER_RETRIES),
    ("attempts", Must.ATTEMPTS),
    ("since", Must.OUTAGE_START),
    ("infra_replaces", Must.INFRA),
)


@dataclass(slots=True)
class Orders:
    """What operators asked for: evidence of clears, cancels and restarted windows."""

    clears: dict[int, int] = field(default_factory=dict)
    cancels: set[int] = field(default_factory=set)
    restarts: int = 0


@dataclass(slots=True)
class Situation:
    """What the model must know besides the rows: who leads since when, and what the API said."""

    leader_since: float | None = None
    database_since: float = 0.0
    api_down: bool = False


class Moves:
    """Judges moves. `complaints` of one move: the invariants that it breaks, with words."""

    def __init__(self, notes: Notes, orders: Orders, situation: Situation) -> None:
        self._notes, self._orders, self._situation = notes, orders, situation
        self.crossed = 0
        """Offers that were Unavailable at or past the end of a window: R4 decided."""

    def complaints(self, old: Row | None, new: Row, now: float) -> Iterator[Complaint]:
        if old is None:
            if (new.state, new.try_number, new.epoch) != ("scheduled", 1, 0):
                yield Must.LEGAL_MOVE, f"inserted as {new.state}, try {new.try_number}, epoch {new.epoch}"
            return
        if new.epoch != old.epoch and (new.pod_name, new.pod_uid, new.nonce) != (None, None, None):
            yield Must.EPOCH, "a new epoch keeps the pod of the old one"
        judge = self._judge_of(old, new)
        if judge is None:
            yield Must.LEGAL_MOVE, f"{_short(old)} became {_short(new)}"
            return
        yield from judge(old, new, now)

    def _judge_of(self, old: Row, new: Row) -> Callable[[Row, Row, float], Iterator[Complaint]] | None:
        bumped = new.epoch > old.epoch
        if new.state == "scheduled" and bumped and new.try_number > old.try_number and old.state != "up_for_retry":
            return self._cleared
        match old.state, new.state:
            case "scheduled", "scheduled" | "queued" if not old.claimed and new.claimed:
                return self._claimed
            case "scheduled" | "queued", "queued" if old.claimed and not new.claimed and new.pod_uid:
                return self._placed
            case "queued", "queued" if not old.claimed and not new.claimed and new.pod_uid == old.pod_uid is not None:
                return self._placed  # once more: the answer to its COMMIT was lost
            case "scheduled" | "queued", "scheduled" if old.claimed and not new.claimed:
                return self._returned
            case "queued", "scheduled" if not old.claimed and bumped:
                return self._re_placed_pod
            case "scheduled" | "queued", "scheduled" | "queued" if old.since and not new.since and not bumped:
                return self._window_restarted
            case "scheduled" | "queued", "running":
                return self._runs
            case "running", "running":
                return self._renewed
            case "running", "scheduled":
                return self._lost
            case "running", "success" | "failed" | "up_for_retry" | "up_for_reschedule" if not bumped:
                return self._ended
            case "up_for_retry", "scheduled":
                return self._retried
            case "up_for_reschedule", "scheduled":
                return self._rescheduled
            case state, "failed" if state not in ("success", "failed") and bumped:
                return self._failed
            case _:
                return None

    # ---- dispatching

    def _claimed(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        yield from _keeps(old, new, epoch=old.epoch + 1)
        if old.next_offer_at > now + CLOSE:
            yield Must.HOLD, f"claimed {old.next_offer_at - now:.3f} s before its next offer"

    def _placed(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        create = self._create(old)
        if create is None or (create.uid, create.pod_name) != (new.pod_uid, new.pod_name):
            yield Must.FENCE, f"placed as {new.pod_uid}, which is no answer to a create of epoch {old.epoch}"
        elif create.disposition != "placed":
            yield Must.DISPOSITION, f"{_named(create)} was settled as placed"
        yield from _keeps(old, new, since=None)

    def _returned(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        create = self._create(old)
        ways = dict(self._expected(old, create, now))
        found = {way: list(expected) for way, expected in ((w, _differs(old, new, e)) for w, e in ways.items())}
        if any(not wrong for wrong in found.values()):
            yield from _keeps(old, new, epoch=old.epoch + 1, attempts=new.attempts, since=new.since)
            self._note_crossing(old, create, failed=False)
            return
        right = create.disposition if create is not None else "deferred"
        if create is None and right not in ways:
            yield Must.FENCE, f"returned by nobody while its create is under way: {_short(new)}"
            return
        if create is not None and right not in ways:
            must = Must.WINDOW if right == "unavailable" else Must.ATTEMPTS if right == "rejected" else Must.DISPOSITION
            yield must, f"{_named(create)} must not be offered again; it is, at {new.next_offer_at:.3f}"
            return
        if create is not None:
            for other in ("unavailable", "backpressure", "rejected", "deferred"):
                as_other = dict(self._as(other, old, create, now))
                if other != right and as_other and not list(_differs(old, new, as_other)):
                    yield Must.DISPOSITION, f"{_named(create)} was settled as {other}"
                    return
        elif old.epoch not in {one.epoch for one in self._notes.creations if one.row == old.id} and new.since is None:
            yield Must.OUTAGE_START, f"never reached the API, and its outage start {old.since} was cleared"
            return
        yield from found[right]

    def _expected(self, old: Row, create: Creation | None, now: float) -> Iterator[tuple[str, dict[str, object]]]:
        """Each way back to scheduled that this row has now, with the values that it leaves."""
        if old.claim_until is not None and old.claim_until <= now + CLOSE:
            yield "dead claim", {"attempts": old.attempts, "since": old.since, "next_offer_at": (old.claim_until, now)}
        if create is None:
            if not any(one.row == old.id and one.epoch == old.epoch for one in self._notes.creations):
                yield "deferred", dict(self._as("deferred", old, None, now))
        elif create.disposition != "placed" and not self._must_fail(old, create):
            yield create.disposition, dict(self._as(create.disposition, old, create, now))

    def _as(self, disposition: str, old: Row, create: Creation | None, now: float) -> Iterator[tuple[str, object]]:
        """The values that a re-offer after this disposition leaves (R5, R6, R8)."""
        if disposition == "deferred":
            yield from (("attempts", old.attempts), ("since", old.since), ("next_offer_at", (now, now + TICK_S)))
            return
        assert create is not None
        assert create.returned_at is not None
        ended = create.returned_at
        match disposition:
            case "unavailable":
                since = old.since if old.since is not None else ended
                hold = min(HOLD_MAX_S - LEAD_S, max(HOLD_S, ended - since))
                yield from (("attempts", old.attempts), ("since", since))
                yield "next_offer_at", max(create.called_at + hold, ended + HOLD_S)
            case "backpressure":
                asked = (create.fault.retry_after_s if create.fault else None) or 0.0
                yield from (("attempts", old.attempts), ("since", None))
                yield "next_offer_at", ended + min(BACKPRESSURE_MAX_S, max(BACKPRESSURE_S, asked))
            case "rejected":
                yield from (("attempts", old.attempts + 1), ("since", None))
                yield "next_offer_at", ended + BACKOFF_S * 2**old.attempts

    def _failed(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        reason = new.reason or ""
        if new.max_tries != new.try_number:
            yield Must.TERMINAL, f"failed ({reason}) with max_tries {new.max_tries} at try {new.try_number}"
        if new.ended_at is None or new.claimed:
            yield Must.LEGAL_MOVE, "failed without an end, or still claimed"
        if reason == "cancelled" and old.run_id in self._orders.cancels:
            yield from _keeps(old, new, epoch=old.epoch + 1, max_tries=old.try_number)
        elif reason.startswith("infra_failed: "):
            if old.infra_replaces != RE_PLACES - 1:
                yield Must.INFRA, f"infra_failed after {old.infra_replaces + 1} re-places"
            yield from self._gone(old, now)
        elif old.claimed:
            yield from self._dispatch_failed(old, new)
        else:
            yield Must.LEGAL_MOVE, f"{_short(old)} failed: {reason}"

    def _dispatch_failed(self, old: Row, new: Row) -> Iterator[Complaint]:
        create, reason = self._create(old), new.reason or ""
        if create is None or create.returned_at is None:
            yield Must.FENCE, f"failed ({reason}) by no answer to a create of epoch {old.epoch}"
            return
        match create.disposition:
            case "unavailable":
                if not self._window_spent(old, create):
                    age = create.called_at - old.since if old.since is not None else 0.0
                    must = Must.DISPOSITION if "rejected" in reason else Must.WINDOW
                    yield must, f"{_named(create)} failed the row after {age:.3f} s: {reason}"
                    return
                assert old.since is not None
                lasted = int(create.returned_at - old.since + CLOSE / 2)
                said = f"dispatch_failed: Kubernetes API unavailable for {_go(lasted)}: "
                cause = create.fault.cause if create.fault and not create.gave_up else "deadline exceeded after 15s"
                if not reason.startswith(said) or (cause and not reason.endswith(f": {cause}")):
                    yield Must.WINDOW, f"its reason is {reason!r}, not {said + (cause or '…')!r}"
                yield from _keeps(old, new, epoch=old.epoch + 1, max_tries=old.try_number)
                self._note_crossing(old, create, failed=True)
            case "rejected":
                if old.attempts + 1 != ATTEMPTS or not reason.startswith(f"dispatch_failed: rejected {ATTEMPTS} times"):
                    yield Must.ATTEMPTS, f"rejection {old.attempts + 1} failed it: {reason}"
                yield from _keeps(
                    old, new, epoch=old.epoch + 1, attempts=ATTEMPTS, max_tries=old.try_number, since=None
                )
            case other:
                yield Must.DISPOSITION, f"{_named(create)} is {other} and failed the row: {reason}"

    def _must_fail(self, old: Row, create: Creation) -> bool:
        if create.disposition == "rejected":
            return old.attempts + 1 >= ATTEMPTS
        return create.disposition == "unavailable" and self._window_spent(old, create)

    def _window_spent(self, old: Row, create: Creation) -> bool:
        return old.since is not None and create.called_at - old.since >= WINDOW_S - 1e-6

    def _note_crossing(self, old: Row, create: Creation | None, *, failed: bool) -> None:
        late = (
            create is not None
            and create.returned_at is not None
            and create.disposition == "unavailable"
            and old.since is not None
            and create.returned_at - old.since >= WINDOW_S
        )
        self.crossed += failed or late

    # ---- agents

    def _runs(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        yield from _keeps(old, new, since=None, infra_replaces=0)
        if self._report(new, "running") is None:
            yield Must.FENCE, f"runs under epoch {new.epoch}, pod {new.pod_uid}: no such process has reported"
        if old.pod_uid not in (None, new.pod_uid):
            yield Must.FENCE, f"pod {new.pod_uid} runs, {old.pod_uid} was placed"
        yield from _lease(old, new, now)

    def _renewed(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        yield from _keeps(old, new, since=None, infra_replaces=0)
        if (old.pod_uid, old.nonce) != (new.pod_uid, new.nonce):
            yield Must.FENCE, f"{new.nonce} runs in the place of {old.nonce}"
        if self._report(new, "heartbeat") is None and self._report(new, "running") is None:
            yield Must.FENCE, "renewed by nobody"
        yield from _lease(old, new, now)

    def _ended(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        said = {"success": "success", "up_for_reschedule": "reschedule"}.get(new.state, "failure")
        if self._report(old, "finished", said) is None:
            yield Must.FENCE, f"became {new.state} without a report of {said} under its epoch"
        if said == "failure" and (new.state == "up_for_retry") != (old.try_number < old.max_tries):
            yield Must.USER_RETRIES, f"{new.state} after try {old.try_number} of {old.max_tries}"
        if new.state == "up_for_retry" and abs(new.next_offer_at - now - old.retry_delay) > CLOSE:
            yield Must.HOLD, f"its retry waits for {new.next_offer_at - now:.3f} s, not {old.retry_delay:g}"
        if (new.pod_uid, new.nonce) != (old.pod_uid, old.nonce):
            yield Must.FENCE, "its end changed its pod or process (R16)"
        yield from _keeps(old, new)

    def _lost(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        yield from self._again(old, new, now)
        if self._report(old, "finished", "lost") is None:
            yield from self._gone(old, now)

    def _report(self, row: Row, what: str, outcome: str | None = None) -> Report | None:
        me = (row.id, row.epoch, row.pod_uid, row.nonce)
        for one in reversed(self._notes.reports):
            if (one.row, one.epoch, one.pod_uid, one.nonce) == me and (one.what, one.outcome) == (what, outcome):
                return one
        return None

    # ---- taking back, retries, operators

    def _re_placed_pod(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        yield from self._again(old, new, now)
        yield from self._gone(old, now)

    def _again(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        """R20: an infra re-place backs off, and the sixth in a row is none any more."""
        yield from _keeps(old, new, epoch=old.epoch + 1, attempts=0, since=None, infra_replaces=old.infra_replaces + 1)
        if old.infra_replaces >= RE_PLACES - 1:
            yield Must.INFRA, f"re-placed for the {old.infra_replaces + 1}th time in a row"
        yield from _backs_off(old, new, now)

    def _gone(self, old: Row, now: float) -> Iterator[Complaint]:
        """R15, R20: the whole lease has passed, or a complete list proved a silent pod gone."""
        steady = max(self._situation.leader_since or 0.0, self._situation.database_since) + LEASE_S
        if self._situation.leader_since is None or now < steady - CLOSE:
            yield Must.RE_PLACE, "re-placed within one lease of the leader's start or the database's return"
        if old.state == "running":
            if old.lease_until is None or now < old.lease_until - CLOSE:
                yield Must.RE_PLACE, f"re-placed before its lease ran out at {old.lease_until}"
            return
        if old.claimed or old.queued_at is None or now < old.queued_at + PLACED_S - CLOSE:
            yield Must.RE_PLACE, f"re-placed {now - (old.queued_at or now):.1f} s after it was placed"
            return
        if self._situation.api_down:
            yield Must.RE_PLACE, "a placed row was re-placed while the API is down"
        proofs = [one for one in self._notes.listings if one.at >= old.queued_at + PLACED_S - CLOSE]
        if not any(one.silent.get(old.pod_uid or "", True) for one in proofs):
            yield Must.RE_PLACE, f"pod {old.pod_uid} was re-placed; no complete list showed it gone"

    def _retried(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        if self._orders.clears.get(old.id) and new.max_tries != old.max_tries:
            yield from self._cleared(old, new, now)
            return
        if old.next_offer_at > now + CLOSE:
            yield Must.HOLD, "retried before its delay was over"
        yield from _keeps(
            old, new, epoch=old.epoch + 1, try_number=old.try_number + 1, attempts=0, since=None, infra_replaces=0
        )

    def _rescheduled(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        if old.next_offer_at > now + CLOSE:
            yield Must.HOLD, "rescheduled before its time"
        yield from _keeps(old, new, epoch=old.epoch + 1, since=None)

    def _cleared(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        if not self._orders.clears.get(old.id):
            yield Must.USER_RETRIES, f"try {new.try_number} after {old.state}, and nobody cleared it"
        if old.state == "running":
            yield Must.LEGAL_MOVE, "a running row was cleared"
        following = old.try_number + 1
        yield from _keeps(
            old,
            new,
            epoch=old.epoch + 1,
            try_number=following,
            max_tries=following + old.retries,
            attempts=0,
            since=None,
            infra_replaces=0,
        )
        if old.lease_until is not None and new.next_offer_at < old.lease_until - CLOSE:
            yield Must.HOLD, "offered while the lease before a clear still runs"

    def _window_restarted(self, old: Row, new: Row, now: float) -> Iterator[Complaint]:
        if not self._orders.restarts:
            yield Must.OUTAGE_START, f"its outage start {old.since} was cleared by nobody"
        yield from _keeps(old, new, since=None)

    def _create(self, row: Row) -> Creation | None:
        """The returned create of this row's present epoch."""
        for one in reversed(self._notes.creations):
            if one.row == row.id and one.epoch == row.epoch and one.returned_at is not None:
                return one
        return None


def _keeps(old: Row, new: Row, **expected: object) -> Iterator[Complaint]:
    """Every protected column has the value that this move gives it, or its old one."""
    for name, must in _PROTECTED:
        want, have = expected.get(name, getattr(old, name)), getattr(new, name)
        if not _same(want, have):
            yield must, f"{name} is {have}, should be {want}: {_short(old)} → {_short(new)}"


def _differs(old: Row, new: Row, expected: dict[str, object]) -> Iterator[Complaint]:
    musts = {"attempts": Must.ATTEMPTS, "since": Must.OUTAGE_START, "next_offer_at": Must.HOLD}
    for name, must in musts.items():
        if not _same(expected[name], getattr(new, name)):
            yield must, f"{name} is {getattr(new, name)}, should be {expected[name]}: {_short(old)}"


def _same(want: object, have: object) -> bool:
    if isinstance(want, tuple):
        return isinstance(have, float) and want[0] - CLOSE <= have <= want[1] + CLOSE
    if isinstance(want, float) and isinstance(have, float):
        return abs(want - have) <= CLOSE
    return want == have


def _lease(old: Row, new: Row, now: float) -> Iterator[Complaint]:
    if new.lease_until is None or not now - CLOSE < new.lease_until <= now + LEASE_S + CLOSE:
        yield Must.RE_PLACE, f"its lease until {new.lease_until} is none, at {now:.3f}"
    elif old.state == "running" and old.lease_until is not None and new.lease_until < old.lease_until - CLOSE:
        yield Must.RE_PLACE, f"its lease shrank from {old.lease_until} to {new.lease_until}"


def _backs_off(old: Row, new: Row, now: float) -> Iterator[Complaint]:
    wait = min(RE_PLACE_MAX_S, RE_PLACE_S * 2**old.infra_replaces)
    if abs(new.next_offer_at - now - wait) > CLOSE:
        yield Must.HOLD, f"re-placed to wait {new.next_offer_at - now:.3f} s, not {wait:g}"


def _named(create: Creation) -> str:
    name = create.fault.name if create.fault is not None else "?"
    return f"the create of epoch {create.epoch} ({name}{', given up' if create.gave_up else ''})"


def _short(row: Row) -> str:
    held = f", since {row.since:.3f}" if row.since is not None else ""
    claim = f", claimed by {row.claimed_by}" if row.claimed_by else ""
    return f"[{row.state} epoch {row.epoch} try {row.try_number}/{row.max_tries} attempts {row.attempts}{held}{claim}]"


def _go(seconds: int) -> str:
    """A duration in Go's words, written down anew: `15m4s`."""
    hours, minutes, left = seconds // 3600, seconds % 3600 // 60, seconds % 60
    return f"{hours}h{minutes}m{left}s" if hours else f"{minutes}m{left}s" if minutes else f"{left}s"
