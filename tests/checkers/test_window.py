"""window and leader_terms: the outage is bounded in time by the row's own clock, whoever leads."""

from itertools import pairwise

import pytest

from chaos.checkers import Verdict
from tests.checkers import spoil
from tests.checkers.conftest import Ask, words
from tests.checkers.synthetic import FEW, SyntheticRun, a_good_run


@pytest.fixture
def expired() -> SyntheticRun:
    """An outage of 27 s and a window of 8 s."""
    return a_good_run(lanes=("tick",), profile="quick", load=FEW, window_s=8)


def test_R4_rows_past_their_window_failed_in_time(expired: SyntheticRun, ask: Ask):
    answer = ask(expired, "window")
    assert answer.verdict is Verdict.VALID, words(answer)
    assert answer.figures["failed"] >= 2
    assert answer.figures["longest_s"] >= 8


@pytest.mark.parametrize(
    ("reason", "right"),
    [
        ("dispatch_failed: Kubernetes API unavailable for {}s: connection refused", True),
        ("dispatch_failed: Kubernetes API unavailable for 0m{}s: connection refused", True),
        ("dispatch_failed: Kubernetes API unavailable for {}.4s: connection refused", False),
        ("dispatch_failed: Kubernetes API unavailable for {} s: connection refused", False),
        ("dispatch_failed: Kubernetes API unavailable for {}s:", False),
        ("dispatch_failed: Kubernetes API unavailable for 15m4s: connection refused", False),
    ],
)
def test_R4_the_reason_has_its_exact_form_and_tells_the_right_time(
    expired: SyntheticRun, ask: Ask, reason: str, right: bool
):
    row = expired.pick("tick", "early")
    last = expired.events("create", row=row)[-1]
    told = int(last["ended"] - last["unavailable_since"])
    spoil.claim_row(expired, "tick", row, reason=reason.format(told))
    assert (ask(expired, "window").verdict is Verdict.VALID) == right


def test_R4_nothing_fails_before_its_window_has_passed(expired: SyntheticRun, ask: Ask):
    expired.info["settings"]["window_s"] = 20
    assert "before its window could have passed" in words(ask(expired, "window"))


def test_R4_nothing_fails_long_after_its_window_has_passed(expired: SyntheticRun, ask: Ask):
    row = expired.pick("tick", "early")
    last = expired.events("create", row=row)[-1]
    last["ended"] += 30
    told = int(last["ended"] - last["unavailable_since"])
    reason = f"dispatch_failed: Kubernetes API unavailable for {told}s: connection refused"
    spoil.claim_row(expired, "tick", row, reason=reason)
    assert "and should have by" in words(ask(expired, "window"))


def test_R4_a_row_that_failed_for_another_reason_is_not_the_windows(expired: SyntheticRun, ask: Ask):
    row = expired.pick("tick", "early")
    spoil.claim_row(expired, "tick", row, reason="dispatch_failed: rejected 6 times: 422 Invalid")
    expired.info["settings"]["window_s"] = 4
    assert f"row {row}:" not in words(ask(expired, "window"))


def test_R8_an_answer_ends_the_window_and_a_deferred_offer_does_not(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "early")
    spoil.restart_window(run, "tick", row)
    assert ask(run, "window").figures["restarted"] == 1
    held = [c for c in run.events("create", row=row) if c["disposition"] == "Unavailable"]
    at = next(i for i, (a, b) in enumerate(pairwise(held)) if a["unavailable_since"] != b["unavailable_since"])
    between = {**held[at], "epoch": held[at]["epoch"] + 1, "unavailable_since": None, "t": held[at]["t"]}
    run.history.append({**between, "disposition": "Deferred", "cause": "rate limiter"})
    assert ask(run, "window").verdict is Verdict.INVALID
    run.history[-1].update(disposition="Backpressure", cause="429 TooManyRequests")
    assert ask(run, "window").verdict is Verdict.VALID


def test_R4_the_control_has_no_window(ask: Ask):
    run = a_good_run(lanes=("control",), profile="quick", load=FEW)
    assert ask(run, "window", "control").verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(("overlap", "verdict"), [(0.0, "valid"), (0.4, "valid"), (0.6, "invalid")])
def test_R19_terms_do_not_overlap(run: SyntheticRun, ask: Ask, overlap: float, verdict: str):
    answer = ask(spoil.two_terms(run, "tick", 15, overlap=overlap), "leader_terms")
    assert answer.verdict == verdict, words(answer)


def test_R19_a_term_has_one_holder(run: SyntheticRun, ask: Ask):
    spoil.leader_term(run, "tick", 1, "a", 1, 10)
    spoil.leader_term(run, "tick", 1, "b", 10, 20)
    assert "had two holders" in words(ask(run, "leader_terms"))
