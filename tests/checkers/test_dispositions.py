"""dispositions: the dispatcher's outcome log held against the audit log, and what was billed."""

import pytest

from chaos.checkers import Verdict
from tests.checkers import spoil
from tests.checkers.conftest import Ask, words
from tests.checkers.synthetic import SyntheticRun, a_good_run

DENIED = 'admission webhook "a" denied the request: no'


def test_R1_the_faults_led_to_what_the_table_says(run: SyntheticRun, ask: Ask):
    answer = ask(run, "dispositions")
    assert answer.verdict is Verdict.VALID, words(answer)
    assert answer.figures["met"]["control-plane-stop"] > 5
    assert answer.figures["met"]["answer-lost"] >= 2
    assert answer.figures["attempts_spent"] == answer.figures["rejected_by_api"] == 1


@pytest.mark.parametrize(
    ("code", "reason", "message", "claim", "verdict"),
    [
        (201, "", "", {"disposition": "Placed", "cause": ""}, "valid"),
        (201, "", "", {"disposition": "Unavailable", "cause": "connection reset", "may_exist": True}, "unknown"),
        (201, "", "", {"disposition": "Unavailable", "cause": "connection reset", "may_exist": False}, "invalid"),
        (201, "", "", {"disposition": "Rejected", "cause": "409 AlreadyExists"}, "invalid"),
        (503, "ServiceUnavailable", "", {"disposition": "Unavailable", "cause": "503 ServiceUnavailable"}, "valid"),
        (503, "ServiceUnavailable", "", {"disposition": "Rejected", "cause": "503 ServiceUnavailable"}, "invalid"),
        (503, "ServiceUnavailable", "", {"disposition": "Unavailable", "cause": "500 InternalError"}, "invalid"),
        (503, "", DENIED, {"disposition": "Unavailable", "cause": "503 ServiceUnavailable"}, "invalid"),
        (503, "", DENIED, {"disposition": "Rejected", "cause": "503 denied by webhook"}, "valid"),
        (500, "InternalError", "", {"disposition": "Unavailable", "cause": "webhook unreachable"}, "valid"),
        (429, "", "", {"disposition": "Backpressure", "cause": "429 TooManyRequests"}, "valid"),
        (429, "", "", {"disposition": "Unavailable", "cause": "429 TooManyRequests"}, "invalid"),
        (403, "Forbidden", "", {"disposition": "Unavailable", "cause": "connection refused"}, "invalid"),
        (403, "Forbidden", "", {"disposition": "Backpressure", "cause": "403 quota"}, "invalid"),
    ],
)
def test_R1_to_R3_a_create_is_called_what_it_was_answered(
    run: SyntheticRun, ask: Ask, code: int, reason: str, message: str, claim: dict[str, object], verdict: str
):
    row = run.pick("tick", "after")
    spoil.call_answered(run, "tick", row, code, reason, message)
    spent = int(claim["disposition"] == "Rejected")
    run.events("create", row=row)[-1].update(may_exist=False, attempts=spent)
    run.events("create", row=row)[-1].update(claim)
    answer = ask(run, "dispositions")
    assert answer.verdict == verdict, words(answer)


@pytest.mark.parametrize(("code", "reason"), [(201, ""), (403, "Forbidden"), (429, "")])
def test_R1_an_answer_may_be_lost_to_a_fault_or_to_the_clients_own_deadline(
    run: SyntheticRun, ask: Ask, code: int, reason: str
):
    row = run.pick("tick", "after")
    spoil.call_answered(run, "tick", row, code, reason, "")
    claim = run.events("create", row=row)[-1]
    claim.update(disposition="Unavailable", cause="deadline exceeded after 5s", may_exist=True)
    assert ask(run, "dispositions").verdict is not Verdict.VALID, "it ended at once, and nothing was at work"
    claim["ended"] = claim["started"] + 5
    assert ask(run, "dispositions").verdict is Verdict.VALID
    claim["ended"] = claim["started"] + 0.1
    spoil.injected_fault(run, "connection-cut", claim["started"] - 0.1, claim["started"] + 0.1)
    answer = ask(run, "dispositions")
    assert answer.verdict is Verdict.VALID, words(answer)


@pytest.mark.parametrize("claimed", ["Rejected", "Backpressure", "Placed"])
def test_R1_what_never_reached_the_apiserver_was_answered_by_nobody(run: SyntheticRun, ask: Ask, claimed: str):
    row = run.pick("tick", "early")
    held = [claim for claim in run.events("create", row=row) if 10 < claim["started"] < 25]
    assert held, "the row should have been offered in the midst of the outage"
    held[0].update(disposition=claimed, attempts=1)
    answer = ask(run, "dispositions")
    assert answer.verdict is Verdict.INVALID
    assert "the apiserver never saw the create" in words(answer)


def test_a_create_may_be_missing_in_the_log_of_an_apiserver_that_was_dying(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "early")
    first = run.events("create", row=row)[0]
    first.update(disposition="Rejected", cause="403 Forbidden", attempts=1)
    first.update(started=run.times.inject + 0.3, ended=run.times.inject + 0.4)
    for claim in run.events("create", row=row)[1:]:
        claim["attempts"] = 1
    answer = ask(run, "dispositions")
    assert answer.verdict is Verdict.VALID, words(answer)
    assert answer.figures["unwitnessed"] == 1


def test_R3_the_control_settles_unavailable_as_rejected_and_bills_it(ask: Ask):
    run = a_good_run(lanes=("control",), profile="quick")
    answer = ask(run, "dispositions", "control")
    assert answer.verdict is Verdict.VALID, words(answer)
    assert answer.figures["attempts_spent"] > 100
    for claim in run.events("create", lane="control", disposition="Rejected"):
        claim["disposition"] = "Unavailable"
    assert ask(run, "dispositions", "control").verdict is Verdict.INVALID, "a 403 is no outage in any lane"
    for claim in run.events("create", lane="control", cause="403 Forbidden"):
        claim["disposition"] = "Rejected"
    answer = ask(run, "dispositions", "control")
    assert answer.verdict is Verdict.VALID, words(answer)


def test_a_fault_that_no_offer_met_proves_nothing(run: SyntheticRun, ask: Ask):
    for claim in run.events("create", cause="connection closed before the answer"):
        claim["cause"] = "503 ServiceUnavailable"
    answer = ask(run, "dispositions")
    assert "no offer under answer-lost was Unavailable as the table has it" in words(answer)


def test_R3_a_refused_connection_is_provably_not_sent(run: SyntheticRun, ask: Ask):
    for event in run.events("fault", fault="control-plane-stop"):
        event["fault"] = "proxy-off"
    assert ask(run, "dispositions").verdict is Verdict.VALID
    for claim in run.events("create", cause="connection refused"):
        claim["may_exist"] = True
    assert "no offer under proxy-off was Unavailable as the table has it" in words(ask(run, "dispositions"))


def test_R7_retries_are_lowered_for_a_failed_dispatch_only(run: SyntheticRun, ask: Ask):
    spoil.claim_row(run, "tick", run.pick("tick", "early"), max_tries=1, retries=2)
    assert "its retries were lowered to 0 of 2" in words(ask(run, "dispositions"))


def test_R6_only_rejections_spend_attempts(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "early")
    answer = ask(spoil.bill_attempts(run, "tick", row), "dispositions")
    assert answer.verdict is Verdict.INVALID
    assert "attempts are billed after 0 rejections" in words(answer)


def test_R6_a_budget_that_is_never_counted_has_no_end(run: SyntheticRun, ask: Ask):
    row = next(claim["row"] for claim in run.events("create", cause="403 Forbidden"))
    for claim in run.events("create", row=row):
        claim["attempts"] = 0
    assert "the budget has no end" in words(ask(run, "dispositions"))


def test_the_count_may_be_told_before_or_after_a_settlement(run: SyntheticRun, ask: Ask):
    for claim in run.events("create", cause="403 Forbidden"):
        claim["attempts"] -= 1
    assert ask(run, "dispositions").verdict is Verdict.VALID


def test_R7_no_retry_of_the_users_is_billed_for_a_dispatch(run: SyntheticRun, ask: Ask):
    answer = ask(spoil.bill_a_retry(run, "tick", run.pick("tick", "early")), "dispositions")
    assert answer.verdict is Verdict.INVALID
    assert "a retry was billed" in words(answer)


def test_R7_a_failed_dispatch_lowers_max_tries(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "early")
    spoil.fail_for_the_outage(run, "tick", row)
    spoil.claim_row(run, "tick", row, max_tries=3, retries=2)
    assert "with max_tries 3 in try 1 (R7)" in words(ask(run, "dispositions"))


def test_R21_a_retry_after_the_users_own_failure_is_the_users(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "early")
    spoil.start_again(run, "tick", row, at=1, outcome="failure")
    spoil.bill_a_retry(run, "tick", row)
    run.ledger[-1]["try"] = 1
    assert ask(run, "dispositions").verdict is Verdict.VALID
