"""The judge: lanes that decide, the control that never does, and what is written down."""

import io
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from chaos.checkers import CHECKERS, CheckResult, Verdict, judge
from chaos.checkers.base import worst
from chaos.errors import ChaosError
from chaos.records import Records
from chaos.result import EXIT_CODES, write_result
from chaos.verdict_table import show
from tests.checkers import spoil
from tests.checkers.synthetic import FEW, SyntheticRun, a_good_run

LANES = ("buffered", "tick", "control")


@pytest.fixture
def three() -> SyntheticRun:
    return a_good_run(profile="quick")


def test_a_good_run_is_valid_although_its_control_fails_tasks(three: SyntheticRun):
    result = judge(three.records())
    assert result.verdict is Verdict.VALID, result.reasons
    assert result.lanes["control"].verdict is Verdict.INVALID
    assert result.lanes["control"].tasks.failed > 10
    assert result.reasons == []


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), profile=st.sampled_from(["full", "quick"]))
def test_a_good_run_is_valid_whatever_its_seed(seed: int, profile: str):
    result = judge(a_good_run(seed=seed, profile=profile, probe_every=1.0).records())
    assert result.verdict is Verdict.VALID, result.reasons


def test_a_control_that_fails_nothing_makes_an_upgrade_run_unknown(three: SyntheticRun):
    for row in three.events("row", lane="control"):
        row["state"] = "success"
    result = judge(three.records())
    assert result.verdict is Verdict.UNKNOWN
    assert "control failed no task: the outage was too short to prove anything" in result.reasons
    three.info["scenario"] = "cut"
    assert judge(three.records()).verdict is Verdict.VALID, "only an upgrade run is compared"


@pytest.mark.parametrize("lane", ["buffered", "tick"])
def test_one_broken_lane_breaks_the_run(three: SyntheticRun, lane: str):
    result = judge(spoil.overlap(three, lane, three.pick(lane, "during")).records())
    assert result.verdict is Verdict.INVALID
    assert [one.name for one in result.lanes.values() if one.verdict is Verdict.INVALID] == [lane, "control"]
    assert result.lanes[lane].tasks.executed_twice == 1


def test_invalid_beats_unknown_beats_valid(three: SyntheticRun):
    spoil.not_healed(three, "control-plane-stop", "tick")
    assert judge(three.records()).verdict is Verdict.UNKNOWN
    spoil.overlap(three, "buffered", three.pick("buffered", "during"))
    assert judge(three.records()).verdict is Verdict.INVALID


@given(st.lists(st.sampled_from(list(Verdict)), min_size=1))
def test_unknown_is_not_green(verdicts: list[Verdict]):
    if worst(verdicts) is Verdict.VALID:
        assert set(verdicts) <= {Verdict.VALID, Verdict.NOT_APPLICABLE}


def test_a_run_with_trouble_or_without_its_drain_is_unknown(three: SyntheticRun):
    assert judge(three.records(), trouble=["no steady state"]).verdict is Verdict.UNKNOWN
    three.say(1, "fail", "suite", "trouble", what="no steady state before the fault")
    assert "no steady state before the fault" in judge(three.records()).reasons
    three.history = [e for e in three.history if e["op"] != "trouble" and e.get("phase") != "drain"]
    assert "the run was broken off before its drain" in judge(three.records()).reasons


def test_a_checker_that_breaks_down_is_unknown_and_hides_no_other(three: SyntheticRun):
    class Broken:
        """Breaks down. Always."""

        name = "broken"

        def check(self, records: Records, lane: str) -> CheckResult:
            raise KeyError("row")

    result = judge(three.records(), checkers=[Broken(), *CHECKERS])
    assert result.verdict is Verdict.UNKNOWN
    assert result.lanes["tick"].checkers["recovery"].verdict is Verdict.VALID
    assert "the checker itself failed: KeyError" in " ".join(result.reasons)


@pytest.mark.parametrize("witness", ["history", "ledger", "audit"])
def test_without_a_witness_nothing_is_proved(three: SyntheticRun, witness: str):
    assert judge(spoil.empty(three, witness).records()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("file", ["history.jsonl", "ledger.jsonl", "audit.jsonl"])
@pytest.mark.parametrize("damage", [spoil.tear, spoil.garble])
def test_a_damaged_witness_makes_no_run_valid_and_stops_no_judge(three: SyntheticRun, file: str, damage: object):
    assert callable(damage)
    damage(three, file)
    result = judge(three.records())
    assert result.verdict is Verdict.UNKNOWN
    assert file in " ".join(result.reasons)


@settings(max_examples=8, deadline=None)
@given(order=st.randoms(use_true_random=False))
def test_the_order_of_ledger_and_audit_lines_does_not_matter(order: object):
    """Several processes write them; only their times count."""
    import random
    import tempfile

    assert isinstance(order, random.Random)
    run = a_good_run(profile="quick", lanes=("tick", "control"), load=FEW, probe_every=1.0)
    before = judge(run.records())
    with tempfile.TemporaryDirectory() as directory:
        path = run.write(Path(directory))
        for name in ("ledger.jsonl", "audit.jsonl"):
            lines = (path / name).read_bytes().splitlines(keepends=True)
            order.shuffle(lines)
            (path / name).write_bytes(b"".join(lines))
        after = judge(Records.load(path))
    assert {n: lane.tasks for n, lane in after.lanes.items()} == {n: lane.tasks for n, lane in before.lanes.items()}
    assert after.verdict is before.verdict


def test_result_json_keeps_its_shape(three: SyntheticRun, tmp_path: Path):
    spoil.overlap(three, "tick", three.pick("tick", "during"))
    written = orjson.loads(write_result(judge(three.records()), tmp_path).read_bytes())
    top = {"schema", "scenario", "profile", "cluster", "kubernetes", "seed", "verdict", "duration_s", "faults", "lanes"}
    assert top <= set(written)
    assert (written["schema"], written["verdict"], written["seed"]) == (1, "invalid", 7)
    assert written["faults"][0] == {"name": "control-plane-stop", "fired_at_s": 5.4, "healed_at_s": 32.3}
    assert set(written["lanes"]) == set(LANES)
    lane = written["lanes"]["tick"]
    tasks = {"submitted", "due_in_outage", "succeeded", "failed", "failed_as_expected", "executed_twice"}
    assert tasks | {"ambiguous_creates", "refused_pods", "attempts_spent"} == set(lane["tasks"])
    assert {checker.name for checker in CHECKERS} == set(lane["checkers"])
    for answer in lane["checkers"].values():
        assert {"verdict", "figures", "first_offence"} <= set(answer)
    assert {"slowest_s", "budget_s", "stable_at_s"} <= set(lane["checkers"]["recovery"]["figures"])
    assert lane["checkers"]["single_execution"]["first_offence"]["row"] == three.pick("tick", "during")


def test_junit_knows_failures_errors_and_a_control_that_does_not_count(three: SyntheticRun, tmp_path: Path):
    spoil.overlap(three, "tick", three.pick("tick", "during"))
    spoil.no_stale_reports(three, "buffered")
    write_result(judge(three.records()), tmp_path)
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    suites = {suite.get("name"): suite for suite in root}
    assert set(suites) == {"upgrade", "upgrade.buffered", "upgrade.tick", "upgrade.control"}
    assert suites["upgrade.tick"].get("tests") == str(len(CHECKERS))
    assert suites["upgrade.tick"].find("testcase[@name='single_execution']/failure") is not None
    assert suites["upgrade.buffered"].find("testcase[@name='fencing']/error") is not None
    assert suites["upgrade.control"].findall("testcase/failure") == []
    assert suites["upgrade.control"].find("testcase[@name='no_lost_task']/skipped") is not None
    assert suites["upgrade"].find("testcase[@name='verdict']/failure") is not None


def test_the_table_says_at_a_glance_what_failed_before_and_now(three: SyntheticRun, tmp_path: Path):
    row = three.pick("tick", "during")
    result = judge(spoil.overlap(three, "tick", row).records())
    write_result(result, tmp_path)
    said = io.StringIO()
    show(result, tmp_path, Console(file=said, width=80))
    lines = said.getvalue().splitlines()
    figures = {line[:26].strip(): line.split() for line in lines if line}
    assert "seed 7, Kubernetes v1.37.2: INVALID" in said.getvalue()
    assert figures["failed"][-3:] == ["0", "0", str(result.lanes["control"].tasks.failed)]
    assert figures["executed twice"][-3:] == ["0", "1", "0"]
    assert figures["lane"] == ["lane", "valid", "INVALID", "(invalid)"]
    assert any(line.startswith(f"invalid: tick, single_execution: row {row} at ") for line in lines)
    assert f"result: {tmp_path / 'result.json'}" in lines
    assert "\x1b" not in said.getvalue(), "no colours where there is no terminal"


def test_exit_codes():
    assert [EXIT_CODES[v] for v in (Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN)] == [0, 1, 2]


def test_a_directory_that_is_no_run_is_named_in_one_line(tmp_path: Path):
    with pytest.raises(ChaosError, match=r"is missing: is .* the directory of a run"):
        Records.load(tmp_path)
    (tmp_path / "run.json").write_bytes(b"")
    with pytest.raises(ChaosError, match="cannot be read as a run's description"):
        Records.load(tmp_path)


@pytest.mark.slow
def test_a_hundred_thousand_tasks_are_judged_in_a_minute(tmp_path: Path):
    from tests.checkers.synthetic import Load

    run = a_good_run(lanes=("tick",), load=Load(before=20_000, early=5_000, during=25_000, after=48_000, lost=2_000))
    run.write(tmp_path)
    del run
    began = time.process_time()
    result = judge(Records.load(tmp_path))
    assert result.lanes["tick"].tasks.submitted == 100_000
    assert result.verdict is Verdict.VALID, result.reasons
    assert time.process_time() - began < 60, "seconds of CPU"
