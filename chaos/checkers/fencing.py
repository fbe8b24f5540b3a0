"""Did the attempt fence hold, and was it put to the test?

Witnesses: the agents' own output, which the node copies (reports sent, accepted, refused), and the audit log (which
epochs a row was asked a pod for, and when). An epoch is *proved old* at a moment by a create request of a later epoch
that reached the apiserver before it (a claim bumps the epoch before the request is sent, R10), or by an accepted
report of a later epoch. Where the dispatcher says that it settled a row away from an epoch, that is a claim; it
excuses a refusal, and it convicts where the same epoch was accepted all the same.
"""

from collections import Counter

from chaos.audit import Create
from chaos.checkers.base import CheckResult, Finding
from chaos.events import CreateClaim, FaultClass, Report
from chaos.records import Lane, Records

MOVED_ON = ("Unavailable", "Backpressure", "Deferred", "Rejected")
"""Dispositions whose settlement takes the row away from its epoch (R10, R13)."""


class Fencing:
    """No report of an old epoch, another pod or another process is accepted, none of the current one is refused, and
    no pod is asked for twice under one epoch. In a phase of lost answers at least one old report was made and
    refused, or the fence was never put to the test."""

    name = "fencing"

    def check(self, records: Records, lane: str) -> CheckResult:
        found, of = Finding(records, lane), records.lanes[lane]
        found.need("history", "audit")
        reports = list(of.all_reports())
        found.figures = {
            "reports": len(reports),
            "accepted": sum(report.accepted is not None for report in reports),
            "refused": sum(report.refused is not None for report in reports),
            "refused_after_lost_answers": 0,
            "double_creates": 0,
        }
        if not reports:
            found.doubt("no report of any agent is on record")
        for row, creates in of.creates.items():
            _one_create_an_epoch(found, row, creates)
        for row in of.reports:
            _accepted_reports(found, of, row)
            _refused_reports(found, of, row)
        for fault in records.faults_of(lane, FaultClass.ANSWER_LOST):
            _put_to_the_test(found, of, fault.name, *fault.active())
        return found.result()


def _one_create_an_epoch(found: Finding, row: int, creates: list[Create]) -> None:
    """R17: a second request under one epoch is a hidden retry, whatever the first was answered."""
    for epoch, count in Counter(create.epoch for create in creates).items():
        if count > 1:
            found.figures["double_creates"] += count - 1
            second = [create for create in creates if create.epoch == epoch][1]
            found.offence(row, second.started, f"{count} create requests under epoch {epoch}", epoch=epoch)


def _accepted_reports(found: Finding, lane: Lane, row: int) -> None:
    """R11, R12, R16: only the current epoch, and of it only one pod's one process, is accepted."""
    accepted = [report for report in lane.reports[row] if report.accepted is not None]
    runners: dict[int, Report] = {}
    for report in accepted:
        assert report.accepted is not None
        newer = _proved_old(lane, row, report.epoch, report.sent)
        if newer is not None:
            what = f"the {report.what} report of epoch {report.epoch} was accepted after {newer}"
            found.offence(row, report.accepted, what, epoch=report.epoch, pod=report.pod)
        if report.what != "running":
            continue
        first = runners.setdefault(report.epoch, report)
        if first.identity != report.identity:
            what = f"two processes were told to run under epoch {report.epoch}: pods {first.pod} and {report.pod}"
            found.offence(row, report.accepted, what, epoch=report.epoch)
        settled = _settled_away(lane, row, report.epoch)
        if settled is not None:
            what = (
                f"epoch {report.epoch} was told to run, and the dispatcher says that it settled the row away from "
                f"that epoch ({settled.disposition} at {settled.ended:.3f} s)"
            )
            found.offence(row, report.accepted, what, epoch=report.epoch, pod=report.pod)


def _refused_reports(found: Finding, lane: Lane, row: int) -> None:
    """R14: a refusal needs a row that proves it."""
    for report in lane.reports[row]:
        if report.refused is not None and not _rightly_refused(found, lane, row, report):
            what = (
                f"the {report.what} report of epoch {report.epoch} was refused "
                f"({report.reason or 'no reason given'}), and nothing shows that it was not the current one"
            )
            found.absence("audit", row, report.refused, what, epoch=report.epoch, pod=report.pod)


def _rightly_refused(found: Finding, lane: Lane, row: int, report: Report) -> bool:
    assert report.refused is not None
    if _proved_old(lane, row, report.epoch, report.refused) or _settled_away(lane, row, report.epoch):
        return True
    others = (other for other in lane.reports[row] if other.accepted is not None and other.epoch == report.epoch)
    if any(other.identity != report.identity for other in others):
        return True  # another process has the attempt
    claim = lane.rows.get(row)
    if claim is not None and claim.state == "failed" and claim.attempt_epoch > report.epoch:
        return True  # cancelled, or failed terminally: that bumps the epoch without any create
    if claim is not None and claim.attempt_epoch > report.epoch and _dispatcher_died(found, lane, row, report):
        return True  # a dead claim is re-offered under a new epoch before its next create (R20)
    if claim is not None and claim.attempt_epoch > report.epoch and _lost_its_row(lane, row, report.epoch):
        return True  # a claim that died before its settlement (a busy machine will do) is re-offered likewise
    if claim is not None and claim.attempt_epoch > report.epoch and _was_given_up(found, lane, row, report):
        return True  # a pod that had not reported in time is re-placed, which bumps the epoch (R20)
    if claim is not None and claim.attempt_epoch > report.epoch and _lease_ran_out(found, lane, row, report):
        return True  # an agent that was not heard for a whole lease is re-placed likewise
    if not any(True for _ in lane.all_claims()):
        found.doubt(f"row {row}: a report was refused, and the dispatcher's outcome log is not on record")
        return True
    return False


def _proved_old(lane: Lane, row: int, epoch: int, moment: float) -> str | None:
    """What proves that the row had left `epoch` by `moment`, in words; None if nothing does."""
    for create in lane.creates.get(row, ()):
        if create.epoch > epoch and create.started < moment:
            return f"a pod of epoch {create.epoch} was asked for at {create.started:.3f} s"
    for other in lane.reports.get(row, ()):
        if other.epoch > epoch and other.accepted is not None and other.accepted < moment:
            return f"a report of epoch {other.epoch} was accepted at {other.accepted:.3f} s"
    return None


def _settled_away(lane: Lane, row: int, epoch: int) -> CreateClaim | None:
    """The dispatcher's claim that it took the row away from the epoch. Such a settlement is guarded to scheduled and
    queued (R13), so it and an accepted RUNNING of the same epoch exclude each other, in whatever order."""
    settled = (claim for claim in lane.claims.get(row, ()) if claim.epoch == epoch and claim.settled)
    return next((claim for claim in settled if claim.disposition in MOVED_ON), None)


def _lost_its_row(lane: Lane, row: int, epoch: int) -> bool:
    """The dispatcher says that it came too late to settle its create: no row was current any more (R13)."""
    return any(claim.epoch == epoch and not claim.settled for claim in lane.claims.get(row, ()))


def _dispatcher_died(found: Finding, lane: Lane, row: int, report: Report) -> bool:
    assert report.refused is not None
    asked = next((c.started for c in lane.creates.get(row, ()) if c.epoch == report.epoch), report.sent)
    faults = found.records.faults_of(lane.name, FaultClass.DISPATCHER, FaultClass.DATABASE)
    return any(fault.active()[0] <= report.refused and asked <= fault.active()[1] for fault in faults)


def _was_given_up(found: Finding, lane: Lane, row: int, report: Report) -> bool:
    """R20: placed, and no RUNNING for longer than the dispatcher waits for one. Pods that were made just before an
    outage can be so late: nobody binds or starts them until it is over."""
    assert report.refused is not None
    waits = found.records.run.settings.get("placed_timeout_s")
    if report.what != "running" or not isinstance(waits, int | float):
        return False
    placed = next((c.ended for c in lane.creates.get(row, ()) if c.epoch == report.epoch and c.committed), None)
    return placed is not None and report.refused - placed >= waits


def _lease_ran_out(found: Finding, lane: Lane, row: int, report: Report) -> bool:
    """R15: a fault of agents lasted for so long that no heartbeat can have kept the lease (R20 re-places the row)."""
    assert report.refused is not None
    unheard_s = found.records.run.setting("lease_s") - found.records.run.setting("lease_margin_s")
    spans = [fault.active() for fault in found.records.faults_of(lane.name, FaultClass.NODE)]
    return any(min(report.refused, end) - begin >= unheard_s for begin, end in spans)


def _put_to_the_test(found: Finding, lane: Lane, fault: str, begin: float, end: float) -> None:
    """A pod whose 201 was lost reported under an epoch that was old by then, and was refused."""
    tested = 0
    for row, reports in lane.reports.items():
        lost = {
            create.epoch
            for create in lane.creates.get(row, ())
            if create.committed and begin <= create.ended and create.started <= end
        }
        tested += sum(report.refused is not None and report.epoch in lost for report in reports)
    found.figures["refused_after_lost_answers"] += tested
    if not tested:
        found.doubt(f"no report of an old epoch was made and refused in {fault}: the fence was not put to the test")
