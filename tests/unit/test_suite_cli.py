"""The commands: exit codes, and one line for a person instead of a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.scenarios import PROFILES, SCENARIOS, find
from chaos.traffic.launcher import REPOSITORY
from chaos.traffic.schedule import draw


def chaos(*words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "chaos", *map(str, words)]
    return subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "nothing"], "no scenario 'nothing'; there are: "),
        (["run", "upgrade", "--profile", "slow"], "no profile 'slow'; there are: full, quick"),
        (["run", "upgrade", "--seed", "-1"], "--seed is a whole number"),
        (["run", "upgrade", "--seed", "x"], "--seed"),
        (["run", "upgrade", "--bogus"], "--bogus"),
        (["bogus"], "bogus"),
        ([], "Missing command"),
    ],
)
def test_bad_usage_is_one_line_and_exits_64(words: list[str], said: str):
    ended = chaos(*words)
    assert ended.returncode == 64
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert ended.stdout == ""


@pytest.mark.parametrize("command", ["check", "report"])
def test_a_run_that_is_not_there_is_named_and_exits_2(command: str, tmp_path: Path):
    ended = chaos(command, "nothing", "--runs-dir", tmp_path)
    assert ended.returncode == 2
    assert "no run 'nothing'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_list_names_every_scenario_and_its_claim():
    ended = chaos("list")
    assert ended.returncode == 0
    assert all(name in ended.stdout for name in SCENARIOS)


def test_heal_without_anything_to_heal_says_so(tmp_path: Path):
    ended = chaos("heal", "--runs-dir", tmp_path)
    assert (ended.returncode, ended.stdout) == (0, f"nothing is left to heal under {tmp_path}\n")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_cues_only_segments_that_it_has(name: str, profile: str):
    scenario = find(name, profile)  # type: ignore[arg-type]
    segments = {segment.name for segment in scenario.segments}
    for stroke in scenario.strokes:
        assert {stroke.load_before, stroke.load_fired, stroke.load_healed} - {None} <= segments
    assert "warm-up" in segments
    json.dumps(scenario.budgets)


@pytest.mark.parametrize("seed", range(20))
def test_the_upgrade_keeps_twenty_tasks_due_in_the_outages_first_seconds(seed: int):
    """Only rows due in the first 20 s (2 s in quick) can use up six attempts before a return after 240 s (24 s)."""
    for profile in PROFILES:
        scenario = find("upgrade", profile)
        outage = draw(seed, scenario.segments, lead_s=scenario.lead_s).segments["outage"]
        assert (
            sum(entry.offset_s < scenario.budgets["opening_s"] for entry in outage) >= scenario.budgets["opening_due"]
        )


def test_the_full_upgrade_has_120_tasks_due_in_its_outage():
    scenario = find("upgrade", "full")
    outage = draw(7, scenario.segments, lead_s=scenario.lead_s).segments["outage"]
    assert sum(entry.offset_s < scenario.strokes[0].hold_s for entry in outage) >= 120
