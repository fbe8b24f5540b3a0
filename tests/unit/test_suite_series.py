"""Several runs in a row: which are made, when a series stops, what it says and with which code it ends."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from chaos import cli, series
from chaos.checkers import Result, Verdict, judge
from chaos.errors import ChaosError, UsageError
from chaos.result import EXIT_CODES
from chaos.ride import STOPPED, Ended
from chaos.scenarios import SCENARIOS, Scenario, find
from chaos.series import Series, Turn, ride_all
from tests.checkers.synthetic import FEW, a_good_run

GOOD = judge(a_good_run(lanes=("tick", "control"), profile="quick", load=FEW).records())


class Rides:
    """Stands in for `ride` and for the testbed: what was ridden, with what outcome, and when the testbed was ended."""

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts: Iterator[Verdict] = iter(verdicts)
        self.happened: list[str] = []
        self.trouble: ChaosError | None = None

    def ride(self, scenario: Scenario, seed: int, runs: Path, console: Console, standing: Any) -> Ended:
        self.happened.append(f"{scenario.name} {seed}")
        verdict = next(self.verdicts, Verdict.VALID)
        result = replace(GOOD, scenario=scenario.name, seed=seed, verdict=verdict)
        return Ended(runs / scenario.name, EXIT_CODES[verdict], result, self.trouble)

    def standing(self, directory: Path) -> "Rides":
        return self

    def __enter__(self) -> "Rides":
        return self

    def __exit__(self, *_: object) -> None:
        self.happened.append("over")

    def end(self) -> None:
        self.happened.append("another testbed")


def turns(*names: str) -> list[Turn]:
    return [Turn(find(name, "quick"), 7) for name in names]


def rode(rides: Rides, monkeypatch: pytest.MonkeyPatch, runs: Path, *names: str, **more: Any) -> tuple[Series, str]:
    monkeypatch.setattr(series, "ride", rides.ride)
    monkeypatch.setattr(series, "Standing", rides.standing)
    said = io.StringIO()
    console = Console(file=said, width=200)
    return ride_all("all", turns(*names), runs, console, **more), said.getvalue()


def test_every_run_is_made_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rides = Rides()
    left_out = {"etcd-leader": "runs in full only: its timer"}
    came, said = rode(rides, monkeypatch, tmp_path, "cut", "flap", left_out=left_out)
    assert rides.happened == ["cut 7", "flap 7", "over"]
    assert came.exit_code == 0
    assert "2 runs in 0.0 min: valid" in said
    assert said.count("  tick ") == said.count("  control ") == 2, "a line for each scenario and lane"
    assert "left out: runs in full only: its timer" in said
    kept = json.loads((came.directory / "series.json").read_text())
    assert [run["scenario"] for run in kept["runs"]] == ["cut", "flap"]
    assert kept["runs"][0]["lanes"]["tick"]["slowest_s"] is not None
    assert kept["verdict"] == "valid"
    assert kept["left_out"] == left_out


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (("valid", "unknown", "valid"), 2),
        (("unknown", "invalid", "valid"), 1),
        (("invalid", "valid", "unknown"), 1),
    ],
)
def test_the_worst_verdict_is_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdicts: tuple[str, ...], code: int
):
    came, _ = rode(Rides(*map(Verdict, verdicts)), monkeypatch, tmp_path, "cut", "flap", "upgrade")
    assert came.exit_code == code
    assert len(came.lines) == 3


def test_a_run_that_proved_nothing_is_followed_by_another_testbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rides = Rides(Verdict.UNKNOWN, Verdict.INVALID)
    rode(rides, monkeypatch, tmp_path, "cut", "flap", "upgrade")
    assert rides.happened == ["cut 7", "another testbed", "flap 7", "upgrade 7", "over"]


@pytest.mark.parametrize("first", [Verdict.UNKNOWN, Verdict.INVALID])
def test_stop_at_first_failure_stops_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Verdict):
    rides = Rides(Verdict.VALID, first)
    came, _ = rode(rides, monkeypatch, tmp_path, "cut", "flap", "upgrade", stop_at_first_failure=True)
    assert rides.happened == ["cut 7", "flap 7", "over"]
    assert came.exit_code == EXIT_CODES[first]


def test_who_stops_a_run_stops_the_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rides = Rides(Verdict.UNKNOWN)
    rides.trouble = STOPPED
    came, _ = rode(rides, monkeypatch, tmp_path, "cut", "flap")
    assert rides.happened == ["cut 7", "over"]
    assert came.trouble is STOPPED


def asked(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[str, list[tuple[str, int]], dict[str, Any]]:
    """What `chaos run …` would ride: the series' name, its turns, and how."""
    seen: list[Any] = []

    def ride_none(name: str, turns: list[Turn], runs: Path, console: Console, **more: Any) -> Series:
        seen.extend((name, [(turn.scenario.name, turn.seed) for turn in turns], more))
        return Series(name, "quick", turns[0].seed, runs, [series.Line(GOOD, runs, 1.0)])

    monkeypatch.setattr(series, "ride_all", ride_none)
    assert cli.app(["run", *words, "--profile", "quick"], standalone_mode=False) in (0, None)
    return seen[0], seen[1], seen[2]


def test_all_is_every_scenario_that_the_profile_can_run(monkeypatch: pytest.MonkeyPatch):
    name, turns, more = asked(monkeypatch, "all", "--seed", "3", "--stop-at-first-failure")
    assert name == "all"
    assert turns == [(one, 3) for one in SCENARIOS if one != "etcd-leader"]
    assert "etcd-leader" in more["left_out"]
    assert more["stop_at_first_failure"]


def test_repeat_takes_the_next_seed_each_time(monkeypatch: pytest.MonkeyPatch):
    name, turns, more = asked(monkeypatch, "cut", "--seed", "3", "--repeat", "3")
    assert (name, turns) == ("cut-x3", [("cut", 3), ("cut", 4), ("cut", 5)])
    assert not more["stop_at_first_failure"]


def test_a_scenario_of_the_full_profile_is_not_run_in_quick():
    with pytest.raises(UsageError, match="etcd-leader runs in full only: after an etcd outage"):
        cli.app(["run", "etcd-leader", "--profile", "quick"], standalone_mode=False)


def test_a_result_is_what_a_series_is_made_of():
    assert isinstance(GOOD, Result)
    assert GOOD.verdict is Verdict.VALID, GOOD.reasons
