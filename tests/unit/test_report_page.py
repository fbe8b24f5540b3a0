"""The report's page: what a reader finds in it, for runs that went well, badly, nowhere, or lost their records."""

import json
import shutil
from pathlib import Path

import pytest

from chaos.checkers import CHECKERS
from chaos.errors import ChaosError
from chaos.report import write_report
from chaos.report.page import inline_json
from chaos.report.verdicts import claim_of
from tests.checkers import spoil
from tests.checkers.synthetic import FEW, SyntheticRun, a_good_run
from tests.report.judged import judge_into, judged, page_of
from tests.report.markup import Markup

SECTIONS = (
    "verdict",
    "checks",
    "story",
    "rates",
    "oldest",
    "latency",
    "causes",
    "availability",
    "ladder",
    "timeline",
    "lanes",
    "forbidden",
    "again",
    "words",
)
CLOCK_PLOTS = ("rates", "oldest", "latency", "causes", "availability", "timeline", "timeline-control")
FILES = ("history.jsonl", "ledger.jsonl", "audit.jsonl", "samples.csv", "result.json")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Markup:
    return Markup(page_of(judged(tmp_path_factory.mktemp("good"))))


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Markup:
    def overlap(run: SyntheticRun) -> object:
        return spoil.overlap(run, "tick", run.pick("tick", "during"))

    def lose(run: SyntheticRun) -> object:
        return spoil.lose(run, "buffered", run.pick("buffered", "after"))

    return Markup(page_of(judged(tmp_path_factory.mktemp("bad"), overlap, lose)))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small judged run, to be copied and spoilt."""
    run = a_good_run(lanes=("tick", "control"), profile="quick", load=FEW)
    return judge_into(run, tmp_path_factory.mktemp("small") / "run")


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "run"))


def test_sections_come_in_reading_order(good: Markup) -> None:
    assert [name for name in good.ids if name in SECTIONS] == list(SECTIONS)
    assert len(good.ids) == len(set(good.ids)), "an id that is there twice leads a link astray"


def test_every_link_within_the_page_leads_somewhere(good: Markup, bad: Markup) -> None:
    for page in (good, bad):
        assert page.links
        assert set(page.links) <= set(page.ids)


def test_nothing_is_fetched(good: Markup) -> None:
    outside = [(tag, at) for tag, at in good.addresses if not at.startswith(("#", "data:"))]
    assert outside == []
    policy = good.meta["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_valid_run_shows_figures_beside_their_budgets(good: Markup) -> None:
    assert "✓ valid" in good.text
    assert "None of 176 tasks failed" in good.text
    assert "of 60 s" in good.text
    assert "Show the first offence" not in good.text


def test_checks_that_apply_to_no_lane_are_one_line(good: Markup) -> None:
    assert "Nothing to check in this run: " in good.text
    assert "– does not apply" in good.text, "one that applies to some lanes keeps its line"
    table = good.text[good.text.index("The checks") : good.text.index("Nothing to check")]
    assert "One leader at a time" not in table


def test_every_checker_has_a_claim_in_plain_words() -> None:
    assert [checker.name for checker in CHECKERS if len(claim_of(checker.name)) < 20] == []


def test_story_tells_outage_load_before_and_now(good: Markup) -> None:
    assert "For 4 min 7 s (from 0:21 to 4:28 on the run’s clock, fault “control-plane-stop”)" in good.text
    assert "64 tasks in each lane came due" in good.text
    assert "Under the rule from before the decision 37 of 88 tasks failed; now, of 176 tasks, none failed" in good.text
    assert "pods were made and the API's answers never arrived (fault “answer-lost”)" in good.text


def test_control_is_shown_as_before_and_does_not_decide(good: Markup) -> None:
    assert "control before" in good.text
    assert "never answered 37 of 0 allowed" in good.text
    assert "first-offence" not in good.ids


@pytest.mark.parametrize("name", CLOCK_PLOTS)
def test_every_plot_over_the_run_clock_has_the_faults_as_bands(good: Markup, name: str) -> None:
    shapes = good.figure(name)["layout"]["shapes"]
    bands = {shape.get("name"): shape["x1"] - shape["x0"] for shape in shapes if shape["type"] == "rect"}
    assert bands["fault-A"] == pytest.approx(248_300)
    assert bands["fault-B"] == pytest.approx(7_300)
    letters = {note["text"] for note in good.figure(name)["layout"]["annotations"]}
    assert {"<b>A</b>", "<b>B</b>"} <= letters


def test_oldest_due_age_has_the_budget_line_and_the_stable_time(good: Markup) -> None:
    figure = good.figure("oldest")
    assert any(
        shape["type"] == "line" and shape.get("y0") == shape.get("y1") == 60 for shape in figure["layout"]["shapes"]
    )
    stable = next(trace for trace in figure["data"] if trace["name"] == "stable")
    assert stable["text"] == ["buffered", "tick", "control"]


def test_claims_and_evidence_are_told_apart(good: Markup) -> None:
    titles = [note["text"] for note in good.figure("causes")["layout"]["annotations"]]
    assert "<b>tick says (claim)</b>" in titles
    assert "<b>the apiserver answered, all lanes (audit log)</b>" in titles


def test_startup_403s_are_counted(good: Markup) -> None:
    assert "3 creates were refused with 403 while the apiserver started (buffered 1, at 4:28" in good.text


def test_it_says_how_to_run_this_again(good: Markup) -> None:
    assert "make chaos-upgrade SEED=7" in good.text
    assert "The seed replays the schedule; the interleaving may differ." in good.text
    assert "Kubernetes v1.37.2" in good.text
    assert "window_s 15 min" in good.text


def test_invalid_run_leads_to_its_first_offence_in_one_click(bad: Markup) -> None:
    assert "✕ invalid" in bad.text
    assert "“Runs once” and “Nothing lost” did not hold in buffered and tick." in bad.text
    assert "Show the first offence: tick, row 33" in bad.text
    assert bad.links[:2] == ["main", "first-offence"], "the first link after the one that skips to the verdict"
    assert "offence-tick-single-execution" in bad.ids
    assert "offence-buffered-no-lost-task" in bad.ids


def test_an_offence_is_told_with_the_whole_story_of_its_row(bad: Markup) -> None:
    story = bad.text[bad.text.index("tick: row 33 broke “Runs once”") :]
    for witness in (
        "audit log create, epoch",
        "dispatcher (claim) offer, epoch",
        "ledger user code starts",
        "★ two executions",
    ):
        assert witness in story


def test_the_worst_rows_begin_with_the_offending_ones_and_a_star(bad: Markup) -> None:
    figure = bad.figure("timeline")
    order = figure["layout"]["yaxis"]["categoryarray"][::-1]
    assert order[0] == "tick 33"
    assert len(order) == 50
    stars = [trace for trace in figure["data"] if trace.get("marker", {}).get("symbol") == "star"]
    assert stars[0]["y"][0] == "tick 33"


def test_unknown_reasons_are_prominent(tmp_path: Path) -> None:
    page = Markup(page_of(judged(tmp_path, lambda run: spoil.not_fired(run, "answer-lost"))))
    assert "? unknown This run proves nothing" in page.text
    assert page.ids.index("reasons") < page.ids.index("checks")
    assert "Why nothing can be said buffered, “The fault happened”: answer-lost was not seen to fire" in page.text
    assert "The fault “answer-lost” was injected at 5:45 and was not seen to fire." in page.text


def test_tasks_that_should_fail_are_told_apart(tmp_path: Path) -> None:
    def deny(run: SyntheticRun) -> None:
        row = run.pick("tick", "after")
        spoil.claim_row(run, "tick", row, state="failed", reason="dispatch_failed: rejected 6 times: denied")
        for event in run.events("submit", lane="tick", row=row):
            event["expect"] = "rejected"

    page = Markup(page_of(judged(tmp_path, deny)))
    assert "now, of 176 tasks, none failed (beside 1 that should)" in page.text
    assert "Failed as expected tasks that were denied on purpose, or whose code fails 0 1 0" in page.text


def test_quick_profile_says_what_it_is(tmp_path: Path) -> None:
    page = Markup(page_of(judged(tmp_path, profile="quick")))
    assert "Quick profile: every duration is about a tenth" in page.text
    assert "10 s are allowed for a recovery" in page.text


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_named_and_the_rest_is_shown(copy: Path, file: str) -> None:
    (copy / file).unlink()
    page = Markup(page_of(copy))
    assert f"{file} is missing" in page.text[page.text.index("Missing from the records") :]
    assert "story" in page.ids
    assert "could not be drawn" not in page.text


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("share", [0.0, 0.31, 0.999])
def test_a_torn_file_still_gives_a_report(copy: Path, file: str, share: float) -> None:
    path = copy / file
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    page = Markup(page_of(copy))
    assert "could not be drawn" not in page.text
    if file != "samples.csv" or not share:  # a csv that breaks off is a shorter csv
        assert file in page.text[page.text.index("Missing from the records") :]


def test_lines_of_another_shape_still_give_a_report(copy: Path) -> None:
    history = copy / "history.jsonl"
    strange = (
        b'{"op":"leader_term","lane":"tick"}\n{"op":"probe"}\n[1]\nnull\n{"op":"fault","fault":"x","t":1,"type":"ok"}\n'
    )
    history.write_bytes(strange + history.read_bytes())
    assert "story" in Markup(page_of(copy)).ids


def test_a_run_that_was_not_judged_says_how_to(copy: Path) -> None:
    (copy / "result.json").unlink()
    page = Markup(page_of(copy))
    assert "not judged" in page.text
    assert "chaos check" in page.text


def test_a_directory_without_run_json_has_a_page_that_says_so(tmp_path: Path) -> None:
    page = Markup(page_of(tmp_path))
    assert "run.json is missing" in page.text
    assert "rates" not in page.ids


def test_no_directory_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ChaosError, match="is no directory of a run"):
        write_report(tmp_path / "nowhere")


def test_what_records_hold_cannot_become_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=http://example.invalid/x>"

    def poison(run: SyntheticRun) -> None:
        run.info["claim"] = run.info["command"] = evil
        for claim in run.events("create", disposition="Unavailable"):
            claim["cause"] = evil
        spoil.claim_row(run, "tick", run.pick("tick", "during"), state="failed", reason=evil)

    page = Markup(page_of(judged(tmp_path, poison, profile="quick")))
    assert [at for _, at in page.addresses if "example.invalid" in at] == []
    assert "alert(1)" in page.text
    names = [trace.get("name", "") for trace in page.figure("causes")["data"]]
    assert names
    assert not any("<" in name for name in names)


def test_inlined_data_cannot_end_its_script() -> None:
    assert "<" not in inline_json({"a": "</script><b>"})
    assert json.loads(inline_json({"a": "</script><b>"})) == {"a": "</script><b>"}


def test_the_file_stays_small_with_plotly_in_it(tmp_path: Path) -> None:
    assert write_report(judged(tmp_path)).stat().st_size < 6_000_000
