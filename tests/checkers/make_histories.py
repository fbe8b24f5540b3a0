"""The stored histories: `python -m tests.checkers.make_histories` writes tests/checkers/histories/ anew.

They are small runs of one lane, kept as files so that a change of the judge is tried on records that do not change
with it. Each has the records of a run and `expect.json`: which checker is asked, what it must answer, and how.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

from tests.checkers import behind, refusals, spoil
from tests.checkers.synthetic import FEW, Event, Load, SyntheticRun, a_good_run

HISTORIES = Path(__file__).with_name("histories")
LANE = "tick"
Build = Callable[[SyntheticRun], object]


@dataclass(frozen=True)
class Case:
    """`name` is <checker>-good[-<what>] or <checker>-bad-<what>; `says` is looked for in the answer's words."""

    name: str
    verdict: str
    build: Build = lambda run: None
    says: str = ""
    lanes: tuple[str, ...] = (LANE,)
    load: Load = FEW
    window_s: float | None = None

    @property
    def checker(self) -> str:
        return self.name.split("-")[0]

    def run(self) -> SyntheticRun:
        run = a_good_run(lanes=self.lanes, profile="quick", load=self.load, probe_every=1.0, window_s=self.window_s)
        self.build(run)
        return run


def on(change: Callable[..., object], kind: str, nth: int = 0, **more: object) -> Build:
    """The change, done to the nth row of that part of the load."""
    return lambda run: change(run, LANE, run.pick(LANE, kind, nth), **more)


def late(by: float) -> Build:
    """The nth row is answered so many seconds after the return; the probe saw the return at 32.31 s."""
    return lambda run: spoil.answer_at(run, LANE, run.pick(LANE, "during", 1), 32.31 + by)


def dispatcher_away(run: SyntheticRun) -> None:
    spoil.never_expire(run, LANE, run.pick(LANE, "early"))
    spoil.injected_fault(run, "leader-kill", 12, 16)


def window_lost_by_a_change(run: SyntheticRun) -> None:
    row = run.pick(LANE, "early")
    spoil.restart_window(run, LANE, row)
    held = [c for c in run.events("create", row=row) if c["disposition"] == "Unavailable"]
    spoil.two_terms(run, LANE, held[len(held) // 2]["started"] - 0.6)


def refused(kind: Callable[[SyntheticRun, str], int], change: Callable[[SyntheticRun, int], object]) -> Build:
    """One row is refused (`refusals.denial`, `refusals.pressure`), and then something is changed about it."""
    return lambda run: change(run, kind(run, LANE))


def claims(run: SyntheticRun, row: int, disposition: str) -> list[Event]:
    return run.events("create", lane=LANE, row=row, disposition=disposition)


def in_too_great_a_hurry(run: SyntheticRun, row: int) -> None:
    last = run.creates(LANE, row)[-1]
    last.update(received=last["received"] - 2, answered=last["answered"] - 2)


def deny_the_bystander(run: SyntheticRun, row: int) -> None:
    create = run.creates(LANE, run.pick(LANE, "after", 1))[0]
    create.update(code=403, reason="Forbidden", message=refusals.DENIAL)


def keep_the_window(run: SyntheticRun, row: int) -> None:
    claims(run, row, "Backpressure")[0]["unavailable_since"] = refusals.DUE


def put_off_after_an_outage(run: SyntheticRun, row: int) -> None:
    """Its first offer was Unavailable: the window began, and what is put off after that clears it."""
    first = claims(run, row, "Backpressure")[0]
    run.audit.remove(next(c for c in run.creates(LANE, row) if c["epoch"] == first["epoch"]))
    first.update(disposition="Unavailable", cause="connection refused", unavailable_since=first["ended"])
    run.info["budgets"]["windows_cleared"] = 1


INVALID, UNKNOWN, VALID = "invalid", "unknown", "valid"
FAULT = "control-plane-stop"

CASES = [
    Case("load_sufficient-good", VALID, lanes=(LANE, "control")),
    Case(
        "load_sufficient-bad-nothing-due-in-the-outage",
        UNKNOWN,
        lambda run: spoil.drop_load(run, LANE, "early", "during"),
        "only 0 tasks were due during control-plane-stop",
    ),
    Case(
        "load_sufficient-bad-little-due-at-its-start",
        UNKNOWN,
        lambda run: run.info["budgets"].update(opening_due=20),
        "only . tasks were due in the first .* of control-plane-stop; at least 20",
        lanes=(LANE, "control"),
    ),
    Case(
        "load_sufficient-bad-nothing-due-before",
        UNKNOWN,
        lambda run: spoil.drop_load(run, LANE, "before"),
        "due before control-plane-stop",
    ),
    Case("fault_fired-good", VALID),
    Case(
        "fault_fired-bad-not-seen",
        UNKNOWN,
        lambda run: spoil.not_fired(run, FAULT),
        "was not seen to fire: confirm_fired failed",
    ),
    Case("fault_fired-bad-creates-got-through", UNKNOWN, on(spoil.leak, "early"), "did not hold"),
    Case(
        "fault_fired-bad-no-answer-was-lost",
        UNKNOWN,
        lambda run: spoil.drop_load(run, LANE, "lost"),
        "took no answer from this lane",
    ),
    Case("healed-good", VALID),
    Case(
        "healed-bad-not-confirmed", UNKNOWN, lambda run: spoil.not_healed(run, FAULT, LANE), "was not seen to be healed"
    ),
    Case("recovery-good", VALID),
    Case("recovery-good-just-in-time", VALID, late(9.9)),
    Case("recovery-bad-a-second-late", INVALID, late(11.0), "answered 11.0 s after the API's return, 10 s are allowed"),
    Case("recovery-bad-never-answered", INVALID, on(spoil.fail_for_the_outage, "early"), "never answered"),
    Case("recovery-bad-audit-log-empty", UNKNOWN, lambda run: spoil.empty(run, "audit"), "audit.jsonl is empty"),
    Case(
        "recovery-bad-heal-not-confirmed",
        UNKNOWN,
        lambda run: spoil.not_healed(run, FAULT, LANE),
        "not seen to be over",
    ),
    Case("single_execution-good", VALID),
    Case("single_execution-good-rescheduled", VALID, on(spoil.reschedule_and_run_again, "before")),
    Case("single_execution-good-agent-killed", VALID, on(spoil.kill_and_run_again, "before", fault="agent-kill")),
    Case("single_execution-bad-overlap", INVALID, on(spoil.overlap, "during"), "two executions at a time"),
    Case(
        "single_execution-bad-run-after-success",
        INVALID,
        on(spoil.run_after_success, "during"),
        "after it had ended with success",
    ),
    Case(
        "single_execution-bad-run-again-unexplained",
        INVALID,
        on(spoil.kill_and_run_again, "before", fault=None),
        "no recorded fault explains it",
    ),
    Case(
        "single_execution-bad-success-that-never-ran",
        INVALID,
        on(spoil.never_run, "during"),
        "no execution of it ended so",
    ),
    Case(
        "single_execution-bad-ledger-torn",
        UNKNOWN,
        lambda run: spoil.tear(run, "ledger.jsonl"),
        "last line of ledger.jsonl is torn off",
    ),
    Case("single_execution-bad-ledger-empty", UNKNOWN, lambda run: spoil.empty(run, "ledger"), "ledger.jsonl is empty"),
    Case("no_lost_task-good", VALID),
    Case("no_lost_task-bad-lost", INVALID, on(spoil.lose, "during"), "still queued at the end"),
    Case("no_lost_task-bad-forgotten", INVALID, on(spoil.forget_row, "during"), "knows no such row"),
    Case("no_lost_task-bad-failed-for-the-outage", INVALID, on(spoil.fail_for_the_outage, "early"), "rejected 6 times"),
    Case("no_lost_task-bad-history-empty", UNKNOWN, lambda run: spoil.empty(run, "history"), "history.jsonl is empty"),
    Case("no_unexpected-good", VALID),
    Case(
        "no_unexpected-bad-never-handed-in",
        INVALID,
        on(spoil.forget_submission, "during"),
        "it ran, and was never handed in",
    ),
    Case("fencing-good", VALID),
    Case("fencing-bad-hidden-retry", INVALID, on(spoil.create_twice, "during"), "2 create requests under epoch"),
    Case(
        "fencing-bad-stale-report-accepted",
        INVALID,
        on(spoil.accept_stale_report, "lost"),
        "was accepted after a pod of epoch",
    ),
    Case(
        "fencing-bad-two-processes",
        INVALID,
        on(spoil.accept_another_process, "during"),
        "two processes were told to run",
    ),
    Case(
        "fencing-bad-current-report-refused",
        INVALID,
        on(spoil.refuse_current_report, "during"),
        "nothing shows that it was not the current one",
    ),
    Case(
        "fencing-bad-no-stale-report",
        UNKNOWN,
        lambda run: spoil.no_stale_reports(run, LANE),
        "the fence was not put to the test",
    ),
    Case(
        "fencing-bad-audit-log-torn",
        UNKNOWN,
        lambda run: spoil.tear(run, "audit.jsonl"),
        "last line of audit.jsonl is torn off",
    ),
    Case("dispositions-good", VALID),
    Case(
        "dispositions-bad-unavailable-called-rejected",
        INVALID,
        on(spoil.call_it_rejected, "early"),
        "called Rejected .connection refused., and the apiserver never saw the create",
    ),
    Case(
        "dispositions-bad-rejected-called-placed",
        INVALID,
        on(spoil.call_answered, "after", code=422, reason="Invalid", message="no"),
        "the apiserver answered 422 Invalid",
    ),
    Case(
        "dispositions-bad-outage-spends-attempts",
        INVALID,
        on(spoil.bill_attempts, "early"),
        "attempts are billed after 0 rejections",
    ),
    Case("dispositions-bad-a-retry-was-billed", INVALID, on(spoil.bill_a_retry, "early"), "a retry was billed"),
    Case(
        "dispositions-bad-no-outcome-log",
        UNKNOWN,
        lambda run: spoil.no_outcome_log(run, LANE),
        "outcome log is not on record",
    ),
    Case("window-good", VALID),
    Case("window-good-expired", VALID, window_s=8),
    Case("window-bad-restarted", INVALID, on(spoil.restart_window, "early"), "its window was restarted"),
    Case(
        "window-bad-failed-before-its-time",
        INVALID,
        lambda run: run.info["settings"].update(window_s=20),
        "before its window could have passed",
        window_s=8,
    ),
    Case("window-bad-never-failed", INVALID, on(spoil.never_expire, "early"), "had not failed by then", window_s=4),
    Case(
        "window-bad-reason-of-another-form",
        INVALID,
        on(
            spoil.claim_row, "early", reason="dispatch_failed: Kubernetes API unavailable for 12.3s: connection refused"
        ),
        "has not the form of R4",
        window_s=8,
    ),
    Case("window-bad-dispatcher-was-away", UNKNOWN, dispatcher_away, "was not up throughout", window_s=4),
    Case("leader_terms-good", VALID, lambda run: spoil.two_terms(run, LANE, 15)),
    Case(
        "leader_terms-bad-overlap",
        INVALID,
        lambda run: spoil.two_terms(run, LANE, 15, overlap=1),
        "past the start of term 2",
    ),
    Case("leader_terms-bad-window-restarted", INVALID, window_lost_by_a_change, "restarted by a change of leader"),
    Case("denied-good", VALID, lambda run: refusals.denial(run, LANE)),
    Case(
        "denied-bad-in-a-hurry",
        INVALID,
        refused(refusals.denial, in_too_great_a_hurry),
        r"offered again 2\.8\d s after offer 5, which was refused; R6 has 4\.8 s",
    ),
    Case(
        "denied-bad-a-bystander-too",
        INVALID,
        refused(refusals.denial, deny_the_bystander),
        "was denied, and was not meant to be",
    ),
    Case(
        "denied-bad-a-bystander-waits",
        INVALID,
        refused(refusals.denial, lambda run, _: spoil.answer_at(run, LANE, run.pick(LANE, "after", 1), 45.0)),
        r"placed 9\.0 s after it was due beside a denial; 8 s are allowed",
    ),
    Case("backpressure-good", VALID, lambda run: refusals.pressure(run, LANE)),
    Case("backpressure-good-quota", VALID, lambda run: refusals.pressure(run, LANE, fault="quota")),
    Case("backpressure-good-after-an-outage", VALID, refused(refusals.pressure, put_off_after_an_outage)),
    Case(
        "backpressure-bad-no-window-was-cleared",
        UNKNOWN,
        refused(refusals.pressure, lambda run, _: run.info["budgets"].update(windows_cleared=1)),
        "only 0 rows were put off while their window ran",
    ),
    Case(
        "backpressure-bad-window-goes-on",
        INVALID,
        refused(refusals.pressure, keep_the_window),
        "its window still runs since 33.6 s",
    ),
    Case(
        "backpressure-bad-given-up",
        INVALID,
        refused(refusals.pressure, lambda run, row: claims(run, row, "Backpressure")[-1].update(next_offer=None)),
        "not to be offered again",
    ),
    Case(
        "backpressure-bad-asked-again-at-once",
        INVALID,
        refused(
            refusals.pressure,
            lambda run, row: claims(run, row, "Backpressure")[0].update(next_offer=refusals.DUE + 0.2),
        ),
        "put off for 0.15 s",
    ),
    Case(
        "backpressure-bad-placed-late",
        INVALID,
        lambda run: refusals.pressure(run, LANE, until=refusals.ROOM + 11),
        "after there was room; 10 s are allowed",
    ),
    Case("no_lost_task-good-denied", VALID, lambda run: refusals.denial(run, LANE)),
    Case(
        "no_lost_task-bad-denied-in-other-words",
        INVALID,
        refused(
            refusals.denial,
            lambda run, row: spoil.claim_row(run, LANE, row, reason="dispatch_failed: gave up: 403 denied by webhook"),
        ),
        "should have failed as .dispatch_failed: rejected 6 times: <cause>.; it is said to be failed",
    ),
    Case(
        "no_lost_task-bad-denied-five-times",
        INVALID,
        refused(refusals.denial, lambda run, row: run.audit.remove(run.creates(LANE, row)[0])),
        "the apiserver refused it 5 times, the last time with 403",
    ),
    Case(
        "no_lost_task-bad-denial-too-short",
        UNKNOWN,
        lambda run: run.events("submit", type="ok", row=run.pick(LANE, "after"))[0].update(expect="rejected"),
        "the denial was over before the 6 attempts were spent",
    ),
    Case("dispositions-good-denied", VALID, lambda run: refusals.denial(run, LANE)),
    Case(
        "dispositions-bad-denial-not-named",
        INVALID,
        refused(refusals.denial, lambda run, row: claims(run, row, "Rejected")[0].update(cause="403 Forbidden")),
        "its cause is 403 Forbidden, and a webhook denied it",
    ),
    Case(
        "dispositions-bad-denial-called-unavailable",
        INVALID,
        refused(
            refusals.denial,
            lambda run, row: claims(run, row, "Rejected")[0].update(disposition="Unavailable", cause="403 webhook"),
        ),
        "called Unavailable .403 webhook., and the apiserver answered 403 Forbidden, which is Rejected",
    ),
    Case(
        "fault_fired-bad-nothing-was-denied",
        UNKNOWN,
        lambda run: spoil.injected_fault(run, "webhook-denies", refusals.BEGIN, refusals.END),
        "webhook-denies met no create of this lane: none was Rejected by the API",
    ),
    Case(
        "load_sufficient-bad-nobody-to-be-denied",
        UNKNOWN,
        lambda run: spoil.injected_fault(run, "webhook-denies", refusals.BEGIN, refusals.END),
        "only 0 tasks were due during webhook-denies and meant to be denied",
    ),
    Case("recovery-good-dispatcher-away", VALID, lambda run: behind.away(run, LANE, "dispatcher-kill-leader", 6.0)),
    Case(
        "recovery-bad-dispatcher-slow-to-return",
        INVALID,
        lambda run: behind.away(run, LANE, "dispatcher-kill-leader", 6.4),
        r"answered 6\.4 s after the API's return, 6\.2 s are allowed",
    ),
    Case(
        "recovery-bad-database-slow-to-return",
        INVALID,
        lambda run: behind.away(run, LANE, "postgres-restart", 6.4),
        r"answered 6\.4 s after",
    ),
    Case(
        "recovery-good-dispatcher-back-before-the-api",
        VALID,
        lambda run: behind.away_in_the_outage(run, LANE, "dispatcher-kill-leader"),
    ),
    Case("recovery-good-windows-that-passed", VALID, window_s=8),
    Case("single_execution-good-cut-off", VALID, on(behind.cut_off, "before", lasts=30)),
    Case(
        "single_execution-bad-cut-off-too-briefly",
        INVALID,
        on(behind.cut_off, "before", lasts=20),
        "no recorded fault explains it",
    ),
    Case("single_execution-good-reported-in-vain", VALID, on(behind.in_vain, "before", away_for=31)),
    Case(
        "single_execution-bad-database-soon-back",
        INVALID,
        on(behind.in_vain, "before", away_for=10),
        "no recorded fault explains it",
    ),
    Case(
        "single_execution-bad-a-short-restart-explains-nothing",
        INVALID,
        on(spoil.kill_and_run_again, "before", fault="dispatcher-rolling-restart"),
        "no recorded fault explains it",
    ),
    Case("fault_fired-good-partition", VALID, lambda run: behind.partitioned(run, LANE, met=True)),
    Case(
        "fault_fired-bad-partition-met-nobody",
        UNKNOWN,
        lambda run: behind.partitioned(run, LANE, met=False),
        "partition met nobody: no agent of this lane had to ask again",
    ),
    Case("fault_fired-good-agent-killed", VALID, on(spoil.kill_and_run_again, "before", fault="agent-kill")),
    Case(
        "fault_fired-bad-nobody-was-killed",
        UNKNOWN,
        lambda run: spoil.injected_fault(run, "agent-kill", behind.BEGIN, behind.BACK),
        "agent-kill met nobody: no user code of this lane was killed",
    ),
    Case("fault_fired-good-latency", VALID, lambda run: behind.slowed(run, LANE, took=0.9)),
    Case(
        "fault_fired-bad-latency-delayed-nothing",
        UNKNOWN,
        lambda run: behind.slowed(run, LANE, took=0.2),
        r"latency met no create of this lane: none took 0\.8 s",
    ),
    Case(
        "load_sufficient-bad-nothing-due-while-away",
        UNKNOWN,
        lambda run: spoil.injected_fault(run, "postgres-cut", behind.BEGIN, behind.BEGIN + 0.3),
        "only 0 tasks were due during postgres-cut; at least 3 are needed",
    ),
    Case(
        "load_sufficient-bad-nothing-ran-when-cut-off",
        UNKNOWN,
        lambda run: spoil.injected_fault(run, "partition", behind.BEGIN, behind.BACK),
        "tasks were running when partition fired; at least 3 are needed",
    ),
    Case("fencing-good-lost-its-row", VALID, on(behind.lost_its_row, "during", settled=False)),
    Case(
        "fencing-bad-refused-though-settled",
        INVALID,
        on(behind.lost_its_row, "during", settled=True),
        "nothing shows that it was not the current one",
    ),
    Case(
        "window-bad-too-few-expired",
        UNKNOWN,
        lambda run: run.info["budgets"].update(expired=99),
        "the outage was to be too long for 99 rows",
        window_s=8,
    ),
    Case(
        "leader_terms-bad-one-term-two-holders",
        INVALID,
        lambda run: spoil.leader_term(spoil.two_terms(run, LANE, 15), LANE, 2, "c", 20, 30),
        "term 2 had two holders: b and c",
    ),
]


def write(case: Case, into: Path) -> Path:
    directory = case.run().write(into / case.name)
    (directory / "samples.csv").unlink()
    expected = {"lane": LANE, "checker": case.checker, "verdict": case.verdict, "says": case.says}
    (directory / "expect.json").write_bytes(orjson.dumps(expected, option=orjson.OPT_INDENT_2) + b"\n")
    return directory


if __name__ == "__main__":
    shutil.rmtree(HISTORIES, ignore_errors=True)
    for each in CASES:
        write(each, HISTORIES)
    print(f"{len(CASES)} histories in {HISTORIES}")
