"""recovery: from the API's first accepted create to the first answered offer of every row that waited."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.checkers import Verdict
from chaos.checkers.recovery import Recovery
from tests.checkers import spoil
from tests.checkers.conftest import Ask, words
from tests.checkers.synthetic import FEW, SyntheticRun, a_good_run

BACK = 32.31
"""When the probe's create is first accepted, in the quick profile."""


def test_R5_the_slowest_answer_is_within_the_budget(run: SyntheticRun, ask: Ask):
    answer = ask(run, "recovery")
    assert answer.verdict is Verdict.VALID, words(answer)
    assert 0 < answer.figures["slowest_s"] < 6
    assert answer.figures["budget_s"] == 10
    assert answer.figures["stable_at_s"] <= answer.figures["budget_s"]


@pytest.mark.parametrize(("after", "verdict"), [(9.9, "valid"), (10.1, "invalid")])
def test_an_answer_counts_from_the_probes_first_accepted_create(
    run: SyntheticRun, ask: Ask, after: float, verdict: str
):
    answer = ask(spoil.answer_at(run, "tick", run.pick("tick", "during", 1), BACK + after), "recovery")
    assert answer.verdict == verdict, words(answer)


def test_61_seconds_are_too_many_where_60_are_allowed(ask: Ask):
    run = a_good_run(lanes=("tick",))
    row = run.pick("tick", "during", 3)
    healed = next(e["t"] for e in run.events("probe", type="ok") if e["t"] > run.times.heal)
    answer = ask(spoil.answer_at(run, "tick", row, healed + 61), "recovery")
    assert answer.verdict is Verdict.INVALID
    assert answer.first_offence is not None
    assert answer.first_offence["row"] == row
    assert answer.figures["slowest_s"] == pytest.approx(61, abs=0.1)


def test_R6_a_row_that_met_a_startup_403_is_shown_apart_with_its_time_to_placement(run: SyntheticRun, ask: Ask):
    answer = ask(run, "recovery")
    assert answer.figures["startup_403s"] == 1
    assert answer.figures["answered_not_placed"] == 1
    assert answer.figures["slowest_placement_s"] > 0


def test_R1_a_201_that_nobody_heard_is_no_answer(run: SyntheticRun, ask: Ask):
    """The audit log says that the pod was made; the dispatcher says, against its own interest, that it never heard."""
    row = run.pick("tick", "during", 1)
    epoch = run.creates("tick", row)[-1]["epoch"]
    for claim in run.events("create", row=row, epoch=epoch):
        claim.update(disposition="Unavailable", cause="connection closed", may_exist=True)
    run.history = [e for e in run.history if not (e["op"] == "agent" and e["row"] == row)]
    answer = ask(run, "recovery")
    assert answer.verdict is Verdict.INVALID
    assert f"row {row}" in words(answer)


def test_R8_a_row_whose_pod_runs_has_left_the_outage_although_the_201_was_lost(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "during", 1)
    epoch = run.creates("tick", row)[-1]["epoch"]
    for claim in run.events("create", row=row, epoch=epoch):
        claim.update(disposition="Unavailable", cause="connection closed", may_exist=True, settled=False)
    answer = ask(run, "recovery")
    assert answer.verdict is Verdict.VALID, words(answer)


def test_an_answer_before_an_unavailable_offer_is_void(run: SyntheticRun, ask: Ask):
    """A 403 as the server went down is no answer to the outage that followed."""
    row = run.pick("tick", "early")
    first = run.events("create", row=row)[0]
    early = {**run.creates("tick", row)[-1], "epoch": 1, "code": 403, "reason": "Forbidden", "message": "no"}
    run.audit.append({**early, "received": first["started"], "answered": first["ended"], "id": "early"})
    first.update(disposition="Rejected", cause="403 Forbidden", attempts=1)
    assert ask(run, "recovery").figures["answered_not_placed"] == 1
    spoil.answer_at(run, "tick", row, 0)
    run.audit = [e for e in run.audit if e["row"] != row or e["epoch"] == 1]
    assert ask(run, "recovery").verdict is Verdict.INVALID


@pytest.mark.parametrize(("after", "rows"), [(9.0, 6), (11.0, 6)])
def test_a_row_that_was_due_before_the_outage_and_is_caught_by_it_counts(
    run: SyntheticRun, ask: Ask, after: float, rows: int
):
    row = run.pick("tick", "before")
    assert ask(run, "recovery").figures["faults"]["control-plane-stop"]["rows"] == rows - 1
    answer = ask(spoil.answer_at(run, "tick", row, BACK + after), "recovery")
    assert answer.figures["faults"]["control-plane-stop"]["rows"] == rows
    assert (answer.verdict is Verdict.VALID) == (after < 10), words(answer)


def test_a_row_that_was_due_before_the_outage_and_never_answered_counts(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "before")
    spoil.never_run(run, "tick", row)
    run.audit = [e for e in run.audit if e["row"] != row]
    assert ask(run, "recovery").figures["never_answered"] == 1


def test_records_that_end_too_early_say_nothing(run: SyntheticRun, ask: Ask):
    cut = BACK + 1
    run.history = [e for e in run.history if e["t"] < cut or e["op"] in ("create", "fault")]
    run.audit = [e for e in run.audit if e["answered"] < cut]
    run.ledger = [e for e in run.ledger if e["t"] < cut]
    run.history = [e for e in run.history if e["op"] != "fault" or e["t"] < cut]
    for claim in run.events("create"):
        claim["t"] = cut
    answer = ask(run, "recovery")
    assert answer.verdict is Verdict.UNKNOWN, words(answer)
    assert "were on record" in words(answer)


def test_the_stable_time_sees_a_row_that_was_due_after_the_return(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "after")
    run.events("submit", row=row)[0].update(due=33.5, t=33)
    answer = ask(spoil.answer_at(run, "tick", row, 44.5), "recovery")
    assert answer.verdict is Verdict.INVALID
    assert "stable" in words(answer)


def test_each_fault_is_judged_up_to_the_next_one(run: SyntheticRun, ask: Ask):
    """A row that lost its answers is late by the outage's clock, and in time by its own fault's."""
    row = run.pick("tick", "lost")
    healed = next(e["t"] for e in run.events("probe", type="ok") if e["t"] > run.times.lost_heal)
    placed = run.creates("tick", row)[-1]
    run.audit = [e for e in run.audit if e["row"] != row or e is placed]
    spoil.answer_at(run, "tick", row, healed + 9)
    answer = ask(run, "recovery")
    assert answer.verdict is Verdict.VALID, words(answer)
    assert answer.figures["faults"]["answer-lost"]["slowest_s"] == pytest.approx(9, abs=0.1)
    assert answer.figures["faults"]["control-plane-stop"]["slowest_s"] < 6
    spoil.answer_at(run, "tick", row, healed + 11)
    assert ask(run, "recovery").verdict is Verdict.INVALID


def test_a_row_that_was_never_answered_is_held_against_the_first_fault_only(run: SyntheticRun, ask: Ask):
    answer = ask(spoil.fail_for_the_outage(run, "tick", run.pick("tick", "early")), "recovery")
    assert answer.figures["never_answered"] == 1
    assert answer.figures["faults"]["answer-lost"]["never_answered"] == 0
    assert answer.offences == 1


def test_a_run_without_an_outage_has_no_recovery(run: SyntheticRun, ask: Ask):
    run.history = [e for e in run.history if e["op"] != "fault"]
    assert ask(run, "recovery").verdict is Verdict.NOT_APPLICABLE


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from(["early", "during"]),
    nth=st.integers(0, 1),
    first=st.floats(0, 30),
    further=st.floats(0, 30),
)
def test_a_later_placement_never_turns_invalid_into_valid(kind: str, nth: int, first: float, further: float):
    def verdict(after: float) -> Verdict:
        run = a_good_run(lanes=("tick",), profile="quick", load=FEW, probe_every=1.0)
        spoil.answer_at(run, "tick", run.pick("tick", kind, nth), BACK + after)
        return Recovery().check(run.records(), "tick").verdict

    if verdict(first) is Verdict.INVALID:
        assert verdict(first + further) is Verdict.INVALID
