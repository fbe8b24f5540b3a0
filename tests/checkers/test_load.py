"""load_sufficient, fault_fired, healed: whether a run can prove anything at all."""

from chaos.checkers import Verdict
from tests.checkers import spoil
from tests.checkers.conftest import Ask, words
from tests.checkers.synthetic import FEW, SyntheticRun, a_good_run


def test_an_outage_within_the_attempt_budget_compares_nothing(ask: Ask):
    """31 backoffs of 5 s are 155 s: in 27 s of outage the old rule fails no task either."""
    run = a_good_run(lanes=("tick", "control"), profile="quick", load=FEW)
    assert ask(run, "load_sufficient").verdict is Verdict.VALID
    run.info["settings"]["backoff_s"] = 5
    assert "no longer than the attempt budget of 155 s" in words(ask(run, "load_sufficient"))


def test_a_task_that_is_handed_in_late_is_due_from_then_on(run: SyntheticRun, ask: Ask):
    before = ask(run, "load_sufficient").figures["due_during"]
    late = run.events("submit", type="ok", row=run.pick("tick", "early"))[0]
    late["t"] = run.times.healed + 1
    assert ask(run, "load_sufficient").figures["due_during"] == before - 1


def test_a_fault_of_no_known_class_proves_nothing(run: SyntheticRun, ask: Ask):
    spoil.injected_fault(run, "something-new", 40, 41)
    assert "is of no known class" in words(ask(run, "fault_fired"))


def test_the_same_fault_twice_is_two_faults(run: SyntheticRun, ask: Ask):
    spoil.injected_fault(run, "answer-lost", 52, 53)
    assert "answer-lost was not seen to be healed" not in words(ask(run, "healed"))
    assert len(run.records().faults) == 3
    answer = ask(run, "fault_fired")
    assert "took no answer from this lane" in words(answer), "the second one met no create"


def test_a_run_without_faults_proves_nothing(run: SyntheticRun, ask: Ask):
    run.history = [e for e in run.history if e["op"] != "fault"]
    for checker in ("load_sufficient", "fault_fired", "healed"):
        assert "no fault was injected" in words(ask(run, checker))
