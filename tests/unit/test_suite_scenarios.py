"""Scenarios are data: that they name what exists, and fit the page and the time they are given."""

import inspect
from pathlib import Path

import pytest

from chaos import faults
from chaos.scenarios import PROFILES, SCENARIOS, Profile, Scenario, find
from chaos.scenarios.base import Stroke
from chaos.traffic.schedule import draw

ALL = [(name, profile) for name in SCENARIOS for profile in PROFILES]


def strokes(scenario: Scenario) -> list[Stroke]:
    return [one for first in scenario.strokes for one in first.all()]


@pytest.mark.parametrize(("name", "profile"), ALL)
def test_a_scenario_names_what_exists(name: str, profile: Profile):
    scenario = find(name, profile)
    assert scenario.name == name
    assert scenario.claim.count(". ") >= 1, "the claim is two sentences"
    segments = {segment.name for segment in scenario.segments} | {None}
    assert "warm-up" in segments
    for stroke in strokes(scenario):
        assert stroke.fault in faults.FAULTS
        assert {stroke.load_before, stroke.load_fired, stroke.load_healed} <= segments
    cued = [cue for one in strokes(scenario) for cue in (one.load_before, one.load_fired, one.load_healed) if cue]
    assert len(cued) == len(set(cued)), "a segment's tasks have keys: cued again, they are the same tasks"
    for first in scenario.strokes:
        names = [faults.make(one.fault).name for one in first.chain()]
        assert len(names) == len(set(names)), "the undos of faults that overlap are kept by their names"
    draw(1, scenario.segments, lead_s=scenario.lead_s)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_fits_its_page(name: str):
    source = Path(inspect.getsourcefile(SCENARIOS[name]) or "")
    assert len(source.read_text().splitlines()) <= 80


@pytest.mark.parametrize("name", SCENARIOS)
def test_quick_is_quicker_than_full(name: str):
    full, quick = (sum(stroke.hold_s for stroke in strokes(find(name, profile))) for profile in ("full", "quick"))
    assert quick <= full / 2


def test_R6_the_denial_outlasts_six_attempts_and_the_whole_run_takes_ten_minutes_at_most():
    for profile, span in (("full", 155.0), ("quick", 15.5)):
        scenario = find("webhook", profile)  # type: ignore[arg-type]
        (denial,) = (stroke for stroke in scenario.strokes if stroke.fault == "webhook-denies")
        (denied,) = (
            part for one in scenario.segments for part in one.parts if getattr(part, "expect", "") == "rejected"
        )
        assert denial.hold_s > span + denied.after_s + denied.within_s  # type: ignore[union-attr]
    full = find("webhook", "full")
    assert sum(stroke.hold_s + stroke.recovery_s for stroke in strokes(full)) + full.warm_up_s < 520


def test_an_outage_of_the_webhook_lasts_about_four_minutes_in_full():
    outage = next(stroke for stroke in find("webhook", "full").strokes if stroke.fault == "webhook-down")
    assert 225 <= sum(stroke.hold_s for stroke in outage.chain()) <= 240


def test_what_hangs_in_a_slow_webhook_can_still_be_offered_within_a_minute():
    """rules.md: the promise holds while held rows x deadline <= 60 s x slots."""
    scenario = find("webhook", "full")
    outage = sum(stroke.hold_s for stroke in strokes(scenario)[:2])
    (segment,) = (one for one in scenario.segments if one.name == "outage")
    held = sum(entry.offset_s < outage for entry in draw(1, (segment,), lead_s=1.0).segments["outage"])
    assert held >= 100
    assert held * 15 <= 60 * 64
