"""What the display and the pictures are made of, and what a person sees."""

import io
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from chaos.collect import outcomes, write_claim
from chaos.errors import ChaosError
from chaos.history import History
from chaos.progress import Progress, stamp
from chaos.rundir import RunDir, find_run
from chaos.sampler import figures_of, unix

NOW = 1_800_000_000.0


def row(state: str, due: float, **more: Any) -> dict[str, Any]:
    due_at = datetime.fromtimestamp(NOW + due, UTC).isoformat()
    return {
        "state": state,
        "due_at": due_at,
        "pod_uid": None,
        "dispatch_unavailable_since": None,
        "reason": None,
    } | more


def test_a_row_waits_from_its_due_time_until_it_has_a_pod():
    seen = figures_of(
        [
            row("scheduled", -4.0, dispatch_unavailable_since="2027-01-15T08:00:00Z"),
            row("scheduled", +2.0),
            row("queued", -7.5),
            row("queued", -90.0, pod_uid="8f9e"),
            row("success", -90.0, pod_uid="8f9e"),
            row("failed", -90.0, reason="dispatch_failed: rejected 6 times: 503"),
        ],
        NOW,
        leader_term=3,
    )
    assert seen.oldest_due_age_s == pytest.approx(7.5)
    assert seen.holding == 1
    assert seen.unfinished == 4
    assert seen.placed == 2


def test_a_row_that_is_due_later_is_no_due_age():
    assert figures_of([row("scheduled", +5.0)], NOW, 0).oldest_due_age_s == 0.0


@pytest.mark.parametrize("written", ["2027-01-15T08:00:00Z", "2027-01-15T09:00:00+01:00", NOW])
def test_times_are_read_in_either_form(written: str | float):
    assert unix(written) == NOW


def test_without_a_terminal_the_progress_is_plain_lines():
    out = io.StringIO()
    progress = Progress(Console(file=out, force_terminal=False, width=200), "upgrade", lambda: 65.0)
    with progress.showing():
        progress.phase("hold", 240.0)
        progress.update({"tick": figures_of([row("failed", -1.0)], NOW, 0)})
    assert "[01:05] hold (240 s)" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_in_a_terminal_the_display_tells_each_lane():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    progress = Progress(console, "upgrade", lambda: 65.0)
    progress.phase("hold", 240.0)
    progress.update({"tick": figures_of([row("scheduled", -61.0)], NOW, 0)})
    console.print(progress.render())
    assert "04:00 left" in out.getvalue()
    assert "61 s" in out.getvalue()


def test_stamp():
    assert [stamp(seconds) for seconds in (-1, 0, 59.6, 3600)] == ["00:00", "00:00", "01:00", "60:00"]


def test_a_run_directory_is_new_and_latest_points_at_it(tmp_path: Path):
    made = RunDir.create(tmp_path, "upgrade", 7)
    made.write_run(scenario="upgrade")
    assert (tmp_path / "latest").resolve() == made.path
    assert abs(made.started_wall - time.time()) < 5
    assert find_run("latest", tmp_path) == find_run(made.path.name, tmp_path) == find_run(made.path, tmp_path)
    with pytest.raises(ChaosError, match=f"upgrade/{made.path.name}"):
        find_run("nothing", tmp_path)


def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ChaosError, match="--runs-dir"):
        RunDir.create(tmp_path / "file", "upgrade", 7)


def test_an_outcome_becomes_a_claim_on_the_run_clock_and_a_torn_line_none(tmp_path: Path):
    line = (
        '{"wall": 1010.5, "row": 1, "epoch": 2, "try": 1, "replica": "tick-1", "disposition": "Unavailable", '
        '"cause": "connection refused", "may_exist": false, "started": 1010.0, "ended": 1010.25, "settled": true, '
        '"next_offer": 1015.0, "attempts": 0, "unavailable_since": 1010.25, "decision": "re-offer"}'
    )
    log = tmp_path / "outcomes.jsonl"
    log.write_text(line + "\n" + line[:50])
    (claim,) = outcomes(log)
    lane: Any = SimpleNamespace(name="tick")
    with History(tmp_path / "history.jsonl", time.monotonic()) as history:
        write_claim(history, lane, 1, claim, 1000.0)
    (event,) = History.read(tmp_path / "history.jsonl")
    assert event["process"] == "tick/1"
    assert (event["t"], event["started"], event["ended"], event["next_offer"]) == (10.25, 10.0, 10.25, 15.0)
    assert event["unavailable_since"] == 10.25
    assert list(outcomes(tmp_path / "none")) == []
