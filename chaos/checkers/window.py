"""Was the outage bounded in time, by the row's own clock, and told in the words that the decision gives?

The window is counted from the row's first failure (R4), which comes no earlier than it is due; so a row that no
create is answered for fails between due + window and due + window + a hold + two deadlines, ticks and limiter waits
(and two buffer waits on the buffered path). When it failed is the dispatcher's own word (its outcome log); that
nothing was answered until then is the audit log's.
"""

import re

from chaos.checkers.base import CheckResult, Finding, not_applicable
from chaos.events import CreateClaim, FaultClass, RowClaim
from chaos.records import Lane, Records

REASON = re.compile(r"^dispatch_failed: Kubernetes API unavailable for (?:(\d+)h)?(?:(\d+)m)?(\d+)s: \S.*$")
EVER_UNAVAILABLE = "dispatch_failed: Kubernetes API unavailable"
CLOCKS_S = 1.0
"""What the database's clock, the dispatcher's and ours may differ by, rounding included."""


class Window:
    """A row that the API is unavailable to for longer than the window fails then and not before, with the reason in its
    exact form, and no other row fails for it. Its start is kept through everything but an answer."""

    name = "window"

    def check(self, records: Records, lane: str) -> CheckResult:
        of = records.lanes[lane]
        if not of.info.decides:
            return not_applicable("this lane has no window: it counts attempts only")
        if not any(claim.disposition == "Unavailable" for claim in of.all_claims()):
            return not_applicable("no offer of this lane was unavailable, so no window began")
        found = Finding(records, lane)
        found.need("history", "audit")
        found.figures = {"window_s": records.run.setting("window_s"), "failed": 0, "longest_s": 0.0, "restarted": 0}
        for row, claims in of.claims.items():
            for before, after in restarted(of, row, claims):
                found.figures["restarted"] += 1
                what = (
                    f"its window was restarted: unavailable since {before.unavailable_since} before epoch "
                    f"{after.epoch}, since {after.unavailable_since} after it, and nothing was answered in between"
                )
                found.offence(row, after.ended, what, epoch=after.epoch)
            _failed_in_time(found, of, row, claims)
        least = int(records.run.budgets.get("expired", 0))
        if found.figures["failed"] < least:
            found.doubt(
                f"only {found.figures['failed']} windows expired; the outage was to be too long for {least} rows"
            )
        return found.result()


def restarted(lane: Lane, row: int, claims: list[CreateClaim]) -> list[tuple[CreateClaim, CreateClaim]]:
    """Pairs of Unavailable offers, one after the other, between which the start of the outage changed (R8). An answer,
    a new try, a clear, or a run of the code in between begins a new episode; a Deferred offer does not."""
    found, last = [], None
    for claim in claims:
        if claim.disposition == "Deferred" or not claim.settled:
            continue
        if claim.disposition != "Unavailable":
            last = None
            continue
        if last is not None and last.unavailable_since is not None and _same_episode(lane, row, last, claim):
            since = claim.unavailable_since
            if since is None or abs(since - last.unavailable_since) > CLOCKS_S / 100:
                found.append((last, claim))
        last = claim
    return found


def _same_episode(lane: Lane, row: int, earlier: CreateClaim, later: CreateClaim) -> bool:
    between = (earlier.ended, later.started)
    ran = any(between[0] <= one.started <= between[1] for one in lane.executions.get(row, ()))
    cleared = any(between[0] <= at <= between[1] for at in lane.clears.get(row, ()))
    # An answer whose claim is missing: the dispatcher may have died between its settlement and its log.
    answered = any(between[0] <= one.t <= between[1] for one in lane.answers(row))
    return earlier.try_number == later.try_number and not (ran or cleared or answered)


def _failed_in_time(found: Finding, lane: Lane, row: int, claims: list[CreateClaim]) -> None:
    submission, said = lane.by_row.get(row), lane.rows.get(row)
    first = next((claim for claim in claims if claim.disposition == "Unavailable"), None)
    if submission is None or said is None or first is None:
        return
    window = found.records.run.setting("window_s")
    begun = max(submission.due, first.started)
    held = max((claim.ended - begun for claim in claims if claim.disposition == "Unavailable"), default=0.0)
    found.figures["longest_s"] = max(found.figures["longest_s"], round(held, 1))
    latest = submission.due + window + _slack(found.records, lane)
    if said.state == "failed" and said.reason.startswith(EVER_UNAVAILABLE):
        found.figures["failed"] += 1
        _rightly_failed(found, said, claims, submission.due + window, latest)
    elif found.records.end > latest and not any(answered.t <= latest for answered in lane.answers(row)):
        if _dispatcher_was_away(found, submission.due, latest):
            return
        if said.state != "failed":
            found.offence(row, latest, f"nothing was answered until {latest:.1f} s, and it had not failed by then")


def _rightly_failed(found: Finding, said: RowClaim, claims: list[CreateClaim], earliest: float, latest: float) -> None:
    at = max(claim.ended for claim in claims)
    duration = REASON.match(said.reason)
    if duration is None:
        found.offence(said.row, at, f"its reason has not the form of R4: {said.reason!r}")
    else:
        hours, minutes, seconds = (int(part or 0) for part in duration.groups())
        told = hours * 3600 + minutes * 60 + seconds
        since = claims[-1].unavailable_since
        if since is not None and not -CLOCKS_S <= at - since - told <= 1 + CLOCKS_S:
            found.offence(said.row, at, f"its reason says {told} s, and it was unavailable for {at - since:.1f} s")
    if at < earliest - CLOCKS_S:
        found.offence(said.row, at, f"it failed at {at:.1f} s, before its window could have passed ({earliest:.1f} s)")
    elif at > latest + CLOCKS_S and not _dispatcher_was_away(found, earliest, at):
        found.offence(said.row, at, f"it failed at {at:.1f} s, and should have by {latest:.1f} s")


def _slack(records: Records, lane: Lane) -> float:
    run = records.run
    waits = 2 * (run.setting("create_deadline_s") + run.setting("tick_s") + run.setting("rate_wait_s"))
    buffered = 2 * run.setting("buffer_wait_s") if lane.info.mode == "buffered" else 0.0
    return run.setting("hold_max_s") + waits + buffered


def _dispatcher_was_away(found: Finding, begin: float, end: float) -> bool:
    """A window cannot end while nobody looks: what was late then proves nothing."""
    for fault in found.records.faults_of(found.lane, FaultClass.DISPATCHER, FaultClass.DATABASE):
        if fault.active()[0] <= end and begin <= fault.active()[1]:
            found.doubt(f"the dispatcher was not up throughout ({fault.name})")
            return True
    return False
