"""denied and backpressure: what the API refuses on purpose; and that no other checker takes it for something else."""

import pytest

from chaos.checkers import CHECKERS, Verdict, judge
from chaos.events import FaultClass, class_of
from tests.checkers import refusals, spoil
from tests.checkers.conftest import Ask, words
from tests.checkers.synthetic import SyntheticRun, a_good_run

FINE = (Verdict.VALID, Verdict.NOT_APPLICABLE)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("webhook-down", FaultClass.OUTAGE),
        ("webhook-slow", FaultClass.OUTAGE),
        ("webhook-tls", FaultClass.OUTAGE),
        ("webhook-garbage-503", FaultClass.OUTAGE),
        ("webhook-denies", FaultClass.DENIAL),
        ("webhook-denies-429", FaultClass.DENIAL),
        ("load-balancer-502", FaultClass.OUTAGE),
        ("throttle", FaultClass.PRESSURE),
        ("quota", FaultClass.PRESSURE),
    ],
)
def test_what_a_fault_is_to_a_dispatcher(name: str, kind: FaultClass):
    assert class_of(name) is kind


@pytest.mark.parametrize("refused", [refusals.denial, refusals.pressure])
def test_a_run_in_which_the_API_refuses_is_valid(run: SyntheticRun, ask: Ask, refused: object):
    assert callable(refused)
    refused(run, "tick")
    for checker in CHECKERS:
        answer = ask(run, checker.name)
        assert answer.verdict in FINE, f"{checker.name}: {words(answer)}"


def test_R6_figures_of_a_denial(run: SyntheticRun, ask: Ask):
    refusals.denial(run, "tick")
    figures = ask(run, "denied").figures
    assert (figures["denied_rows"], figures["denied_creates"], figures["bystanders"]) == (1, 6, 1)
    assert figures["slowest_end_s"] == pytest.approx(9.3, abs=0.3)


def test_R8_figures_of_a_throttle(run: SyntheticRun, ask: Ask):
    refusals.pressure(run, "tick")
    figures = ask(run, "backpressure").figures
    assert figures["put_off_rows"] == 1
    assert figures["put_off_creates"] == figures["most_offers"] == 7
    assert figures["windows_cleared"] == 0


def test_a_denial_and_a_control_that_only_failed_what_it_should_prove_nothing():
    """What fails in the control for the denial alone does not show that the outage was long enough."""
    run = a_good_run(lanes=("tick", "control"), profile="quick", scenario="webhook")
    failed = [event["row"] for event in run.events("row", lane="control", state="failed")]
    assert failed, "the rule from before fails rows of the outage"
    assert not any("failed no task" in why for why in judge(run.records()).trouble)
    for event in run.events("submit", lane="control"):
        event["expect"] = "rejected"
    assert any("control failed no task" in why for why in judge(run.records()).trouble)


def test_a_webhook_that_denied_nobody_leaves_the_checker_out(run: SyntheticRun, ask: Ask):
    assert ask(run, "denied").verdict is Verdict.NOT_APPLICABLE
    assert ask(run, "backpressure").verdict is Verdict.NOT_APPLICABLE


def test_a_throttle_whose_end_nobody_saw_proves_nothing(run: SyntheticRun, ask: Ask):
    refusals.pressure(run, "tick")
    spoil.not_healed(run, "throttle", "tick")
    assert ask(run, "backpressure").verdict is Verdict.UNKNOWN
