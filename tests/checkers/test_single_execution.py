"""single_execution, no_lost_task, no_unexpected: what ran, held against what should have run."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.checkers import Verdict
from chaos.checkers.single_execution import SingleExecution
from tests.checkers import spoil
from tests.checkers.conftest import Ask, words
from tests.checkers.synthetic import FEW, SyntheticRun, a_good_run

SECOND_TRY: dict[str, Any] = {"try": 2}


def test_R11_executions_that_overlap_are_always_invalid(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "during")
    answer = ask(spoil.overlap(run, "tick", row), "single_execution")
    assert answer.verdict is Verdict.INVALID
    assert answer.figures["executed_twice"] == 1
    assert answer.first_offence is not None
    assert answer.first_offence["row"] == row


def test_R15_an_overlap_is_invalid_even_where_a_fault_would_explain_a_second_start(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "before")
    spoil.overlap(run, "tick", row)
    spoil.injected_fault(run, "partition", 3, 40)
    assert ask(run, "single_execution").verdict is Verdict.INVALID


def test_an_overlap_is_seen_behind_a_short_execution_in_between(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "during")
    start = run.code("tick", row, "start")[0]["t"]
    run.code("tick", row, "end")[0]["t"] = start + 30
    spoil.start_again(run, "tick", row, at=start + 1, epoch=101)
    spoil.start_again(run, "tick", row, at=start + 10, epoch=102, nonce="b")
    assert ask(run, "single_execution").figures["executed_twice"] == 2


def test_R12_one_process_starts_its_code_once(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "during")
    start, end = run.code("tick", row, "start")[0], run.code("tick", row, "end")[0]
    run.ledger.append({**start, "t": end["t"] + 1})
    answer = ask(run, "single_execution")
    assert "the same agent process started the code twice" in words(answer)


def test_an_execution_without_an_end_has_not_ended(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "before")
    spoil.kill_and_run_again(run, "tick", row, fault="agent-kill")
    run.ledger.remove(run.code("tick", row, "exit")[0])
    answer = ask(run, "single_execution")
    assert answer.verdict is Verdict.INVALID
    assert "no end on record" in words(answer)


def test_R16_an_end_that_could_not_be_reported_within_its_lease_may_be_run_again(run: SyntheticRun, ask: Ask):
    """The code ended, database and dispatcher were away, the lease of 30 s ran out: the row is placed again."""
    row = run.pick("tick", "before")
    sent = run.events("agent", row=row, agent="report", what="running")[0]["t"]
    accepted = run.events("agent", row=row, agent="accepted", what="finished")[0]
    run.history.remove(accepted)
    spoil.start_again(run, "tick", row, at=sent + 31)
    assert ask(run, "single_execution").verdict is Verdict.INVALID, "no fault explains it"
    spoil.injected_fault(run, "database-restart", sent + 0.5, sent + 35)
    answer = ask(run, "single_execution")
    assert answer.verdict is Verdict.VALID, words(answer)
    assert answer.figures["explained"] == 1


def test_R16_an_end_that_was_taken_is_never_run_again_whatever_fails_later(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "before")
    sent = run.events("agent", row=row, agent="report", what="running")[0]["t"]
    spoil.start_again(run, "tick", row, at=sent + 40)
    spoil.injected_fault(run, "database-restart", sent + 0.5, sent + 45)
    assert "after it had ended with success and could say so" in words(ask(run, "single_execution"))


def test_a_fault_at_another_time_explains_nothing(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "before")
    spoil.kill_and_run_again(run, "tick", row, fault=None)
    spoil.injected_fault(run, "agent-kill", 60, 61)
    assert "no recorded fault explains it" in words(ask(run, "single_execution"))


def test_R15_before_its_lease_ran_out_nothing_may_be_run_again(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "before")
    sent = run.events("agent", row=row, agent="report", what="running")[0]["t"]
    run.history.remove(run.events("agent", row=row, agent="accepted", what="finished")[0])
    spoil.start_again(run, "tick", row, at=sent + 29)
    spoil.injected_fault(run, "database-restart", sent + 0.5, sent + 35)
    assert ask(run, "single_execution").verdict is Verdict.INVALID


def test_R21_a_new_try_may_run_after_a_failure_and_never_after_a_success(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "before")
    end = run.code("tick", row, "end")[0]
    spoil.start_again(run, "tick", row, at=end["t"] + 5, **SECOND_TRY)
    spoil.claim_row(run, "tick", row, try_number=2, max_tries=3, retries=2)
    assert "in a new try after it had succeeded" in words(ask(run, "single_execution"))
    end["outcome"] = "failure"
    assert ask(run, "single_execution").verdict is Verdict.VALID


def test_R21_a_cleared_row_runs_again(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "before")
    end = run.code("tick", row, "end")[0]
    spoil.start_again(run, "tick", row, at=end["t"] + 5, **SECOND_TRY)
    spoil.claim_row(run, "tick", row, try_number=2)
    run.say(end["t"] + 1, "ok", "suite", "clear", lane="tick", row=row)
    assert ask(run, "single_execution").verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        ({"state": "failed", "reason": "exit code 1"}, "is said to have failed"),
        ({"state": "failed", "reason": "dispatch_failed: rejected 6 times: 422"}, "is said to have failed"),
        ({"state": "running"}, "is said to be running"),
    ],
)
def test_every_execution_is_in_the_rows(run: SyntheticRun, ask: Ask, claim: dict[str, str], says: str):
    spoil.claim_row(run, "tick", run.pick("tick", "during"), **claim)
    assert says in words(ask(run, "single_execution"))


def test_a_row_that_ran_is_not_said_to_have_failed_its_dispatch(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "during")
    run.code("tick", row, "end")[0]["outcome"] = "failure"
    reason = "dispatch_failed: Kubernetes API unavailable for 15m4s: connection refused"
    spoil.claim_row(run, "tick", row, state="failed", reason=reason)
    assert "said never to have been placed" in words(ask(run, "single_execution"))


def test_an_end_without_its_start_is_lost_evidence(run: SyntheticRun, ask: Ask):
    run.ledger.remove(run.code("tick", run.pick("tick", "during"), "start")[0])
    answer = ask(run, "single_execution")
    assert "no start of" in words(answer)
    assert answer.verdict is not Verdict.VALID


def test_a_run_that_was_broken_off_loses_no_task(run: SyntheticRun, ask: Ask):
    spoil.lose(run, "tick", run.pick("tick", "during"))
    assert ask(run, "no_lost_task").verdict is Verdict.INVALID
    run.history = [e for e in run.history if e.get("phase") != "drain"]
    assert ask(run, "no_lost_task").verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("expect", "outcome", "state", "reason", "verdict"),
    [
        ("failure", "failure", "failed", "exit code 1", "valid"),
        ("failure", "success", "success", "", "invalid"),
        ("any", "success", "success", "", "valid"),
        ("dispatch_failed", "success", "success", "", "invalid"),
    ],
)
def test_a_task_ends_as_the_load_meant_it_to(
    run: SyntheticRun, ask: Ask, expect: str, outcome: str, state: str, reason: str, verdict: str
):
    row = run.pick("tick", "during")
    run.events("submit", type="ok", row=row)[0]["expect"] = expect
    run.code("tick", row, "end")[0]["outcome"] = outcome
    spoil.claim_row(run, "tick", row, state=state, reason=reason)
    answer = ask(run, "no_lost_task")
    assert answer.verdict == verdict, words(answer)


def test_R6_a_denied_task_should_fail_after_six_rejections_in_their_words(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "after")
    spoil.deny(run, "tick", row)
    assert ask(run, "no_lost_task").verdict is Verdict.INVALID, "nobody meant it to be denied"
    run.events("submit", type="ok", row=row)[0]["expect"] = "rejected"
    answer = ask(run, "no_lost_task")
    assert answer.verdict is Verdict.VALID, words(answer)
    run.audit.remove(run.creates("tick", row)[0])
    assert "the apiserver refused it 5 times" in words(ask(run, "no_lost_task"))


def test_a_denial_that_was_over_too_early_proves_nothing(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "after")
    run.events("submit", type="ok", row=row)[0]["expect"] = "rejected"
    assert "the denial was over before the 6 attempts were spent" in words(ask(run, "no_lost_task"))


def test_an_unanswered_submission_accounts_for_one_row_and_a_refused_one_for_none(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "during")
    accepted = run.events("submit", type="ok", row=row)[0]
    accepted.update(type="info", row=None)
    assert ask(run, "no_unexpected").verdict is Verdict.VALID
    accepted["type"] = "fail"
    assert "never handed in" in words(ask(run, "no_unexpected"))


@settings(max_examples=30, deadline=None)
@given(
    kind=st.sampled_from(["before", "early", "during", "after"]),
    offset=st.floats(-20, 20),
    outcome=st.sampled_from(["success", "failure", "reschedule", None]),
)
def test_another_execution_of_a_finished_row_is_never_valid(kind: str, offset: float, outcome: str | None):
    run = a_good_run(lanes=("tick",), profile="quick", load=FEW, probe_every=1.0)
    row = run.pick("tick", kind)
    spoil.start_again(run, "tick", row, at=run.code("tick", row, "start")[0]["t"] + offset, outcome=outcome)
    found = SingleExecution().check(run.records(), "tick")
    if outcome == "reschedule" and offset < -1:
        assert found.verdict is Verdict.VALID  # it asked to be run later, and was
    else:
        assert found.verdict is Verdict.INVALID


@settings(max_examples=30, deadline=None)
@given(share=st.floats(0, 1))
def test_a_ledger_that_is_cut_off_anywhere_is_never_taken_for_whole(share: float):
    """Whatever is left of it: a start or an end that is gone makes the claim unknown or invalid, never valid."""
    run = a_good_run(lanes=("tick",), profile="quick", load=FEW, probe_every=1.0)
    run.ledger = [line for line in run.ledger if line["event"] != "exit"]
    run.ledger.sort(key=lambda line: line["t"])
    run.ledger = run.ledger[: int(share * (len(run.ledger) - 1))]
    assert SingleExecution().check(run.records(), "tick").verdict is not Verdict.VALID
