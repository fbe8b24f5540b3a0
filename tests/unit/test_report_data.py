"""From records to series: bins, ages, ladders, strips; and numbers as people read them."""

import pytest

from chaos.report import human
from chaos.report.availability import merged, strips_of
from chaos.report.budgets import figures_of
from chaos.report.data import RunData
from chaos.report.ladder import hold_ladder, ladders_of, old_ladder
from chaos.report.rows import Outcome, RowFacts, shortened, story_of, worst
from chaos.report.series import Bins, Span, latency_points, oldest_due_age
from tests.checkers import spoil
from tests.checkers.synthetic import a_good_run


def a_row(row: int, due: float, left: float | None, outcome: Outcome = Outcome.RODE_OUT) -> RowFacts:
    failed = left if outcome is Outcome.FAILED else None
    placed = None if outcome is Outcome.FAILED else left
    return RowFacts("tick", row, f"task-{row}", due, outcome, placed, placed, failed, offers=1)


@pytest.fixture(scope="module")
def data() -> RunData:
    return RunData.of(a_good_run().records())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.34, "0.34 s"),
        (31.04, "31.0 s"),
        (99.97, "1 min 40 s"),
        (243, "4 min 3 s"),
        (3725, "1 h 2 min"),
        (-2, "−2.0 s"),
    ],
)
def test_durations_read_like_durations(value: float | None, text: str) -> None:
    assert human.seconds(value) == text


def test_figures_are_worded_by_their_names() -> None:
    assert human.figure("fired_at_s", {"control-plane-stop": 21.2}) == "control-plane-stop 0:21"
    assert human.figure("stable_at_s", 24.25) == "24.2 s"
    assert human.figure("rows", 12345) == "12,345"
    assert human.figure("startup_403s", 3) == "3"


def test_bins_are_as_many_however_long_the_run() -> None:
    for length in (20, 90, 480, 3600, 100_000):
        bins = Bins.over(Span(10, 10 + length))
        assert 30 <= bins.number <= 121
        assert sum(bins.count([10, 10 + length / 2, 10 + length])) == 3
        assert sum(bins.count([9.99, 11 + length + bins.width])) == 0


def test_the_rarest_causes_are_put_together() -> None:
    bins = Bins.over(Span(0, 10))
    events = [(f"cause {number}", 1.0) for number in range(20) for _ in range(20 - number)]
    counts = bins.count_by(events, most=3)
    assert list(counts) == ["cause 0", "cause 1", "cause 2", "other"]
    assert sum(map(sum, counts.values())) == len(events)


def test_the_oldest_due_age_grows_until_the_oldest_is_answered() -> None:
    ages = dict(oldest_due_age([a_row(1, 10, 50), a_row(2, 20, 30), a_row(3, 40, None)], Span(0, 100), points=100))
    assert [ages[t] for t in (5, 10, 25, 49, 50, 60, 100)] == [0, 0, 15, 39, 10, 20, 60]


def test_a_failed_row_waits_no_longer() -> None:
    ages = dict(oldest_due_age([a_row(1, 10, 50, Outcome.FAILED)], Span(0, 100), points=100))
    assert ages[49] == 39
    assert ages[51] == 0


def test_100_000_tasks_are_a_few_hundred_points_with_the_extremes() -> None:
    rows = [a_row(row, row / 250, row / 250 + (500 if row == 77_777 else 20 + row % 7)) for row in range(100_000)]
    points = latency_points(rows, Bins.over(Span(0, 400)))[Outcome.RODE_OUT]
    assert len(points) < 500
    assert max(point.waited for point in points) == pytest.approx(500)
    assert sum(point.stands_for for point in points) == pytest.approx(100_000, rel=0.01)


def test_R5_hold_ladder_is_that_of_the_rules(data: RunData) -> None:
    assert hold_ladder(data.records.run, 190) == [0, 5, 10, 20, 40, 80, 137, 194]


def test_R6_old_ladder_ends_with_the_sixth(data: RunData) -> None:
    assert old_ladder(data.records.run) == [0, 5, 15, 35, 75, 155]


def test_R5_the_chosen_row_follows_the_ladder_and_the_control_fails(data: RunData) -> None:
    ladders = {ladder.lane: ladder for ladder in ladders_of(data)}
    assert set(ladders) == {"buffered", "tick", "control"}
    for lane in ("buffered", "tick"):
        lates = [rung.late_s for rung in ladders[lane].rungs[1:]]
        assert len(lates) >= 7
        assert all(late is not None and 0 <= late < 3 for late in lates)
        assert ladders[lane].rungs[-1].offer.placed
    assert len(ladders["control"].rungs) == 6
    assert ladders["control"].failed


def test_due_placed_and_run_add_up(data: RunData) -> None:
    for lane in data.lanes.values():
        assert sum(lane.due) == 88
        assert sum(lane.placed) + lane.failed == 88
        assert sum(lane.began) == sum(lane.placed)
        assert sum(lane.outcomes.values()) == 88
        assert len(lane.startup_403s) == 1
        assert lane.other_403s == []
    assert data.outage_s == pytest.approx(247.3, abs=0.1)


def test_spans_of_availability_join() -> None:
    seen = [
        (0.0, "served", ""),
        (1.0, "served", ""),
        (2.0, "refused", "reset"),
        (3.0, "refused", ""),
        (4.0, "served", ""),
    ]
    assert [(s.begin, s.end, s.state, s.why) for s in merged([*seen, (9.0, "served", "")])] == [
        (0.0, 2.0, "served", ""),
        (2.0, 4.0, "refused", "reset"),
        (4.0, 9.0, "served", ""),
    ]


def test_leader_terms_come_from_the_leadership_table_where_it_was_sampled() -> None:
    run = spoil.two_terms(a_good_run(lanes=("tick",), profile="quick"), "tick", change=20)
    records = run.records()
    strip = next(strip for strip in strips_of(records, []) if strip.name == "Leader of tick")
    assert [(s.begin, s.end, s.state) for s in strip.states] == [
        (1, 20, "term 1"),
        (20, 20.5, "no leader"),
        (20.5, 70, "term 2"),
    ]
    assert strip.away_s == pytest.approx(0.5)


def test_the_worst_rows_are_named_then_failed_then_slow() -> None:
    rows = [a_row(1, 0, 5), a_row(2, 0, 90), a_row(3, 0, 20, Outcome.FAILED), a_row(4, 0, 1)]
    assert [row.row for row in worst(rows, {("tick", 4): 0}, 3)] == [4, 3, 2]


def test_a_rows_story_holds_every_witness_and_the_offence_in_its_place() -> None:
    run = a_good_run(lanes=("tick",), profile="quick")
    row = run.pick("tick", "lost")
    moments = story_of(run.records().lanes["tick"], row, (48.0, "broken here"))
    assert {moment.witness for moment in moments} == {
        "suite",
        "dispatcher (claim)",
        "audit log",
        "agent, by the node",
        "ledger",
        "checker",
    }
    assert [moment.t for moment in moments] == sorted(moment.t for moment in moments)
    assert any("refused, stale epoch" in moment.what for moment in moments)
    kept, left_out = shortened(moments, at_most=9)
    assert any(moment.offence for moment in kept)
    assert left_out == len(moments) - len(kept) > 0


def test_figures_stand_beside_their_budgets() -> None:
    slowest, stable = figures_of({"slowest_s": 31.0, "budget_s": 60, "stable_at_s": 24.2})
    assert (slowest.value, slowest.budget) == ("31.0 s", "of 60 s")
    assert slowest.share == pytest.approx(0.517, abs=0.001)
    assert (stable.value, stable.budget) == ("24.2 s", "")
    (due,) = figures_of({"due_during": 12, "due_during_least": 20})
    assert (due.value, due.budget) == ("12", "of at least 20")
    assert figures_of({"failed": 3}, held=False)[0].budget == "of 0 allowed"
    assert figures_of({"failed": 3})[0].budget == "", "a scenario may ask for tasks that fail"
