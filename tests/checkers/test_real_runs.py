"""The judge on the records of real runs (real/*.tar.xz, kept by `trim`): valid as they are, and spoilt one by one."""

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos import jsonl
from chaos.checkers import Verdict, judge
from chaos.records import Records

RUNS = sorted(path.name for path in Path(__file__).with_name("real").glob("*.tar.xz"))
Lines = list[dict[str, Any]]


@pytest.fixture(params=RUNS)
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).with_name("real") / request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def change(directory: Path, name: str, spoil: Callable[[Lines], object]) -> None:
    lines = list(jsonl.read(directory / name))
    spoil(lines)
    (directory / name).write_bytes(b"".join(map(jsonl.encode, lines)))


def broken(directory: Path, lane: str = "tick") -> set[str]:
    checkers = judge(Records.load(directory)).lanes[lane].checkers
    return {name for name, answer in checkers.items() if answer.verdict is Verdict.INVALID}


def first(lines: Lines, **wanted: Any) -> dict[str, Any]:
    return next(line for line in lines if all(line.get(name) == value for name, value in wanted.items()))


def test_a_real_run_is_valid_and_its_control_failed_tasks(real: Path):
    result = judge(Records.load(real))
    assert result.verdict is Verdict.VALID, result.reasons
    for lane in result.lanes.values():
        assert (lane.tasks.failed == 0) == lane.decides
        assert lane.tasks.executed_twice == 0
        assert lane.tasks.refused_pods > 0


def test_no_loss_or_overlap_in_a_real_ledger_goes_unseen(real: Path):
    def overlap(lines: Lines) -> None:
        start = first(lines, event="start", lane="tick")
        lines.append({**start, "epoch": start["epoch"] + 2, "nonce": "other", "t_mono": start["t_mono"] + 0.01})

    change(real, "ledger.jsonl", overlap)
    assert broken(real) == {"single_execution"}


def test_a_task_that_never_ran_is_missed_in_a_real_ledger(real: Path):
    def forget(lines: Lines) -> None:
        row = first(lines, event="start", lane="tick")["row"]
        lines[:] = [line for line in lines if (line["lane"], line["row"]) != ("tick", row)]

    change(real, "ledger.jsonl", forget)
    assert broken(real) == {"single_execution", "no_lost_task"}


def test_R17_one_more_request_in_a_real_audit_log_is_a_hidden_retry(real: Path):
    def repeat(lines: Lines) -> None:
        agent = "rideout-dispatcher"
        event = next(
            e for e in lines if e["userAgent"].startswith(agent) and e["objectRef"]["namespace"] == "tasks-tick"
        )
        lines.append({**event, "auditID": "another"})

    change(real, "audit.jsonl", repeat)
    assert broken(real) == {"fencing"}


def test_R11_a_stale_report_that_is_accepted_is_seen_in_a_real_history(real: Path):
    def accept(lines: Lines) -> None:
        first(lines, op="agent", agent="refused", what="running", lane="tick")["agent"] = "accepted"

    change(real, "history.jsonl", accept)
    assert "fencing" in broken(real)


def test_R1_an_outage_that_is_called_a_rejection_is_seen_in_a_real_history(real: Path):
    def call(lines: Lines) -> None:
        heal = first(lines, op="fault", step="heal", type="invoke")["t"]
        claim = next(
            line
            for line in lines
            if line["op"] == "create" and line["lane"] == "tick" and heal - 15 < line["started"] < heal - 5
        )
        claim["disposition"] = "rejected"

    change(real, "history.jsonl", call)
    assert broken(real) == {"dispositions"}


def test_a_placement_that_comes_too_late_is_seen_in_a_real_audit_log(real: Path):
    def delay(lines: Lines) -> None:
        records = Records.load(real)
        fault = records.faults[0]
        healed = records.healed_at(fault, "tick")
        assert healed is not None
        lane = records.lanes["tick"]
        row = next(
            row
            for row in lane.by_row
            if (placed := lane.placed_at(row))
            and placed > healed
            and lane.by_row[row].due < healed
            and not [a for a in lane.answers(row) if a.t < healed]
        )
        for event in lines:
            if f"(row={row};" in event["userAgent"] and event["objectRef"]["namespace"] == "tasks-tick":
                for stamp in ("requestReceivedTimestamp", "stageTimestamp"):
                    minute = int(event[stamp][14:16])
                    event[stamp] = f"{event[stamp][:14]}{(minute + 1) % 60:02d}{event[stamp][16:]}"

    change(real, "audit.jsonl", delay)
    assert "recovery" in broken(real)
