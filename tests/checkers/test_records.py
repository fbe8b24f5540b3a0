"""What follows from the records before anybody judges them: what was answered, when the API was back, the damage."""

from pathlib import Path
from typing import Any

import pytest

from chaos import jsonl
from chaos.audit import Answer
from chaos.events import FaultClass, class_of
from chaos.history import History
from chaos.records import Records
from tests.checkers import spoil
from tests.checkers.synthetic import FEW, SyntheticRun, a_good_run


def lost_answers(run: SyntheticRun, lane: str) -> int:
    """How many 201s of the answer-lost phase count as heard, though nobody can have heard them."""
    answers = [one for row in run.kinds[lane] for one in run.records().lanes[lane].answers(row)]
    phase = (run.times.lost_inject, run.times.lost_heal)
    return sum(phase[0] <= a.create.started < phase[1] - 0.1 and not a.by_running for a in answers)


def test_R1_a_lost_answer_is_none_by_the_dispatchers_own_word(run: SyntheticRun):
    assert lost_answers(run, "tick") == 0


def test_R1_a_lost_answer_is_none_where_nobody_says_that_it_came(run: SyntheticRun):
    assert lost_answers(spoil.no_outcome_log(run, "tick"), "tick") == 0


def test_R1_a_lost_answer_is_none_in_the_control_which_calls_it_rejected():
    run = a_good_run(lanes=("control",), profile="quick", load=FEW)
    assert {claim["disposition"] for claim in run.events("create", cause="connection closed before the answer")} == {
        "Rejected"
    }
    assert lost_answers(run, "control") == 0


def test_R1_a_refusal_that_was_not_heard_is_no_answer(run: SyntheticRun):
    row = run.pick("tick", "after")
    spoil.call_answered(run, "tick", row, 403, "Forbidden", "no")
    assert [one.answer for one in run.records().lanes["tick"].answers(row)] == [Answer.REJECTED]
    run.events("create", row=row)[-1].update(disposition="Unavailable", cause="connection reset")
    assert run.records().lanes["tick"].answers(row) == []


def test_R13_an_unavailable_that_settled_nothing_held_nothing(run: SyntheticRun):
    row = run.pick("tick", "early")
    held = len(run.records().lanes["tick"].unavailable_at(row))
    run.events("create", row=row)[0]["settled"] = False
    assert len(run.records().lanes["tick"].unavailable_at(row)) == held - 1


def test_the_return_is_the_answer_to_a_probe_that_was_asked_after_the_heal_began(run: SyntheticRun):
    def healed() -> float | None:
        records = run.records()
        return records.healed_at(records.faults[0], "tick")

    back = healed()
    assert back is not None
    at = run.times.heal
    run.say(at + 0.2, "ok", "probe", "probe", lane="tick", connection="new", code=201, started=at - 0.5)
    assert healed() == back, "it was asked before the heal"
    run.say(at + 0.4, "ok", "probe", "probe", lane="tick", connection="new", code=201, started=at + 0.1)
    assert healed() == pytest.approx(at + 0.4)
    confirmed = run.events("fault", step="confirm_healed", type="ok")[0]
    confirmed["evidence"]["lanes"] = {"tick": at + 0.3}
    assert healed() == pytest.approx(at + 0.3), "the suite noted when the answer was there"
    confirmed["evidence"]["lanes"] = {"tick": at + 0.05}
    assert healed() == pytest.approx(at + 0.4), "no probe was under way then"


def test_a_probe_without_a_lane_is_nobodys(run: SyntheticRun):
    for probe in run.events("probe"):
        probe["lane"] = None
    records = run.records()
    assert records.healed_at(records.faults[0], "tick") is None


@pytest.mark.parametrize(
    ("change", "counted"),
    [
        ({}, True),
        ({"requestURI": "/api/v1/namespaces/tasks-tick/pods?dryRun=All"}, False),
        ({"userAgent": "rideout-probe/1"}, False),
        ({"objectRef": {"resource": "pods", "namespace": "tasks-tick", "subresource": "binding"}}, False),
        ({"objectRef": {"resource": "configmaps", "namespace": "tasks-tick"}}, False),
        ({"objectRef": {"resource": "pods", "namespace": "default"}}, False),
        ({"verb": "delete"}, False),
        ({"stage": "RequestReceived"}, False),
    ],
)
def test_only_a_dispatchers_own_creates_count(
    run: SyntheticRun, tmp_path: Path, change: dict[str, object], counted: bool
):
    run.write(tmp_path)
    events = list(jsonl.read(tmp_path / "audit.jsonl"))
    before = sum(1 for _ in Records.load(tmp_path).lanes["tick"].all_creates())
    events.append({**events[-1], "auditID": "one more", **change})
    (tmp_path / "audit.jsonl").write_bytes(b"".join(map(jsonl.encode, events)))
    assert sum(1 for _ in Records.load(tmp_path).lanes["tick"].all_creates()) == before + counted


def test_damage_is_counted_and_never_guessed_at(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a":1}\n[1]\n\nnot json\n{"a":2}\n{"a":')
    damage = jsonl.Damage()
    assert [line["a"] for line in jsonl.read(path, damage)] == [1, 2]
    assert (damage.lines, damage.damaged, damage.first_damaged_line, damage.torn) == (2, 2, 2, True)
    assert not damage.complete
    missing = jsonl.Damage()
    assert list(jsonl.read(tmp_path / "none", missing)) == []
    assert missing.missing
    assert missing.silent


def test_a_phase_that_is_told_twice_in_a_row_goes_on(run: SyntheticRun):
    phases = [phase.name for phase in run.records().phases]
    run.say(run.times.fired + 1, "info", "suite", "phase", phase="hold")
    assert [phase.name for phase in run.records().phases] == phases


def test_an_exit_ends_what_ran_in_its_pod_and_nothing_that_came_later(run: SyntheticRun):
    """A container that is started twice has two exits under one pod uid."""
    row = run.pick("tick", "during")
    start = run.code("tick", row, "start")[0]
    gone = run.code("tick", row, "exit")[0]
    spoil.start_again(run, "tick", row, at=gone["t"] + 5, pod_uid=start["pod_uid"], outcome=None)
    run.ledger.append({**gone, "t": gone["t"] + 9, "code": -9})
    first, second = run.records().lanes["tick"].executions[row]
    assert (first.exit_code, second.exit_code) == (0, -9)
    assert second.over == pytest.approx(gone["t"] + 9)


def test_a_known_event_that_lacks_what_it_should_hold_is_damage(run: SyntheticRun, tmp_path: Path):
    run.write(tmp_path)
    with (tmp_path / "history.jsonl").open("ab") as file:
        file.write(b'{"t":1,"type":"ok","process":"load","op":"submit"}\n')
    with (tmp_path / "ledger.jsonl").open("ab") as file:
        file.write(b'{"event":"start","lane":"tick"}\n')
    damage = Records.load(tmp_path).damage
    assert damage["history"].damaged == damage["ledger"].damaged == 1


def test_a_history_keeps_whole_lines_of_several_writers(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    with History(path, 0.0) as one, History(path, 0.0) as other:
        for number in range(200):
            (one if number % 2 else other).write("info", "suite", "phase", t=number, phase="x" * 5000)
        posing: dict[str, Any] = {"type": "ok", "process": "suite", "said": 1}
        one.write("info", "node", "agent", **posing)
    events = History.read(path)
    assert [event["t"] for event in events[:200]] == list(range(200))
    assert (events[-1]["type"], events[-1]["process"], events[-1]["said"]) == ("info", "node", 1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("control-plane-stop", FaultClass.OUTAGE),
        ("apiserver-kill", FaultClass.OUTAGE),
        ("etcd-leader", FaultClass.OUTAGE),
        ("proxy-off", FaultClass.OUTAGE),
        ("webhook-down", FaultClass.OUTAGE),
        ("webhook-denies-429", FaultClass.DENIAL),
        ("answer-lost-late", FaultClass.ANSWER_LOST),
        ("leader-kill", FaultClass.DISPATCHER),
        ("database-restart", FaultClass.DATABASE),
        ("agent-kill", FaultClass.NODE),
        ("something-new", FaultClass.OTHER),
    ],
)
def test_a_faults_class_is_told_by_its_name_unless_it_says_otherwise(name: str, kind: FaultClass):
    assert class_of(name) is kind
    assert class_of(name, "pressure") is FaultClass.PRESSURE
