"""fencing: the reports that the agents made, held against the epochs that the audit log saw."""

import pytest

from chaos.checkers import Verdict
from tests.checkers import spoil
from tests.checkers.conftest import Ask, words
from tests.checkers.synthetic import SyntheticRun, a_good_run


def test_R11_old_reports_were_made_and_refused(run: SyntheticRun, ask: Ask):
    answer = ask(run, "fencing")
    assert answer.verdict is Verdict.VALID, words(answer)
    assert answer.figures["refused_after_lost_answers"] >= 2
    assert answer.figures["accepted"] + answer.figures["refused"] == answer.figures["reports"]


def test_R11_an_accepted_report_of_an_old_epoch_is_invalid(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "lost")
    answer = ask(spoil.accept_stale_report(run, "tick", row), "fencing")
    assert answer.verdict is Verdict.INVALID
    assert "was accepted after a pod of epoch" in words(answer)


@pytest.mark.parametrize("what", ["finished", "heartbeat"])
def test_R16_an_old_end_must_be_refused_too(run: SyntheticRun, ask: Ask, what: str):
    row = run.pick("tick", "lost")
    spoil.accept_stale_report(run, "tick", row)
    newest = max(create["epoch"] for create in run.creates("tick", row))
    for event in run.events("agent", row=row):
        event["what"] = what if event["epoch"] < newest else event["what"]
    answer = ask(run, "fencing")
    assert answer.verdict is Verdict.INVALID
    assert f"the {what} report of epoch" in words(answer)


def test_R13_an_epoch_that_was_settled_away_cannot_also_run(run: SyntheticRun, ask: Ask):
    """Both happened under one epoch: whichever was first, the guard of the other did not hold."""
    row = run.pick("tick", "during")
    epoch = run.creates("tick", row)[-1]["epoch"]
    run.events("create", row=row, epoch=epoch)[0].update(disposition="Unavailable", cause="reset", may_exist=True)
    assert "settled the row away from that epoch" in words(ask(run, "fencing"))
    run.events("create", row=row, epoch=epoch)[0]["settled"] = False  # the pod had won the race
    assert ask(run, "fencing").verdict is Verdict.VALID


def test_R12_the_same_process_may_repeat_its_report_and_no_other(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "during")
    for event in run.events("agent", row=row, what="running"):
        run.history.append({**event, "t": event["t"] + 0.5})
    assert ask(run, "fencing").verdict is Verdict.VALID
    answer = ask(spoil.accept_another_process(run, "tick", row), "fencing")
    assert "two processes were told to run" in words(answer)


def test_R12_a_second_process_is_rightly_refused(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "during")
    spoil.accept_another_process(run, "tick", row)
    for event in run.events("agent", row=row, agent="accepted", nonce=spoil.STRANGER["nonce"]):
        event["agent"] = "refused"
    assert ask(run, "fencing").verdict is Verdict.VALID


def test_R14_a_refusal_needs_a_row_that_proves_it(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "during")
    answer = ask(spoil.refuse_current_report(run, "tick", row), "fencing")
    assert answer.verdict is Verdict.INVALID
    assert "nothing shows that it was not the current one" in words(answer)


def test_R10_a_later_epoch_proves_a_refusal_only_from_its_create_on(run: SyntheticRun, ask: Ask):
    """Placed again 30 s after a wrong refusal: the new epoch excuses nothing that happened before it."""
    row = run.pick("tick", "during")
    spoil.refuse_current_report(run, "tick", row)
    run.history = [e for e in run.history if not (e["op"] == "agent" and e["row"] == row and e["what"] == "finished")]
    last = run.creates("tick", row)[-1]
    run.audit.append(
        {**last, "epoch": last["epoch"] + 2, "received": last["received"] + 30, "answered": last["answered"] + 30}
    )
    assert ask(run, "fencing").verdict is Verdict.INVALID
    run.audit[-1].update(received=last["received"] + 0.1, answered=last["answered"] + 0.1)
    assert ask(run, "fencing").verdict is Verdict.VALID


def test_R20_a_dead_claim_explains_a_refusal_where_its_dispatcher_was_killed(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "during")
    spoil.refuse_current_report(run, "tick", row)
    last = run.creates("tick", row)[-1]
    spoil.claim_row(run, "tick", row, attempt_epoch=last["epoch"] + 2)
    assert ask(run, "fencing").verdict is Verdict.INVALID
    spoil.injected_fault(run, "leader-kill", last["received"] - 0.1, last["received"] + 3)
    assert ask(run, "fencing").verdict is Verdict.VALID


def test_R20_a_pod_that_did_not_report_in_time_explains_a_refusal(run: SyntheticRun, ask: Ask):
    row = run.pick("tick", "during")
    spoil.refuse_current_report(run, "tick", row)
    last = run.creates("tick", row)[-1]
    refused = run.events("agent", row=row, agent="refused")[0]["t"]
    spoil.claim_row(run, "tick", row, attempt_epoch=last["epoch"] + 2)
    run.info["settings"] = {**run.info["settings"], "placed_timeout_s": refused - last["answered"] + 0.5}
    assert ask(run, "fencing").verdict is Verdict.INVALID
    run.info["settings"]["placed_timeout_s"] -= 1.0
    assert ask(run, "fencing").verdict is Verdict.VALID


@pytest.mark.parametrize("code", [201, 503, 403])
def test_R17_a_second_create_under_one_epoch_is_a_hidden_retry_whatever_was_answered(
    run: SyntheticRun, ask: Ask, code: int
):
    row = run.pick("tick", "during")
    spoil.create_twice(run, "tick", row)
    run.audit[-1]["code"] = code
    answer = ask(run, "fencing")
    assert answer.verdict is Verdict.INVALID
    assert answer.figures["double_creates"] == 1


def test_an_audit_event_that_is_logged_twice_is_one_request(run: SyntheticRun, ask: Ask):
    create = run.creates("tick", run.pick("tick", "during"))[0]
    create["id"] = "one"
    run.audit.append(dict(create))
    assert ask(run, "fencing").verdict is Verdict.VALID


def test_a_fence_that_was_not_put_to_the_test_is_unknown_in_that_lane_alone(ask: Ask):
    run = a_good_run(lanes=("buffered", "tick"), profile="quick")
    spoil.no_stale_reports(run, "tick")
    assert ask(run, "fencing", "tick").verdict is Verdict.UNKNOWN
    assert ask(run, "fencing", "buffered").verdict is Verdict.VALID
    run.history = [e for e in run.history if e.get("fault") != "answer-lost"]
    assert ask(run, "fencing", "tick").verdict is Verdict.VALID, "without lost answers there is nothing to be tested"


def test_only_the_reports_of_pods_that_lost_their_answer_test_the_fence(run: SyntheticRun, ask: Ask):
    """Old reports were refused, but none of them came of the phase in which answers were lost."""
    for event in run.events("fault", fault="answer-lost"):
        event["t"] += 20
        event.get("evidence", {}).pop("at", None)
    answer = ask(run, "fencing")
    assert answer.figures["refused"] > 0
    assert answer.figures["refused_after_lost_answers"] == 0
    assert answer.verdict is Verdict.UNKNOWN


def test_agents_that_nobody_listened_to_prove_nothing(run: SyntheticRun, ask: Ask):
    run.history = [e for e in run.history if e["op"] != "agent"]
    assert "no report of any agent is on record" in words(ask(run, "fencing"))
