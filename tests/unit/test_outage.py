"""When the API is called *down*: in the rules' sense, not by one poison row, and not by silence."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.outage import ApiHealth
from dispatcher.rules import Disposition

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
UNAVAILABLE, DEFERRED = Disposition.UNAVAILABLE, Disposition.DEFERRED
ANSWERS = [Disposition.PLACED, Disposition.BACKPRESSURE, Disposition.REJECTED]


def health_after(*notes: tuple[int, Disposition]) -> ApiHealth:
    health = ApiHealth()
    for second, (row_id, disposition) in enumerate(notes):
        health.note(row_id, disposition, f"cause {second}", T0 + timedelta(seconds=second))
    return health


def test_an_idle_dispatcher_knows_of_no_outage():
    assert not ApiHealth().down
    assert ApiHealth().since is None


def test_one_poison_row_is_no_outage_however_often_it_fails():
    assert not health_after(*[(1, UNAVAILABLE)] * 10).down


def test_two_rows_without_an_answer_in_between_are_one_since_the_first_failure():
    health = health_after((1, UNAVAILABLE), (1, UNAVAILABLE), (2, UNAVAILABLE))
    assert health.down
    assert health.since == T0
    assert health.cause == "cause 2"


@pytest.mark.parametrize("answer", ANSWERS)
def test_any_answer_ends_it_also_a_refusal(answer: Disposition):
    health = health_after((1, UNAVAILABLE), (2, UNAVAILABLE), (3, answer))
    assert (health.down, health.since, health.cause) == (False, None, None)
    assert not health_after((1, UNAVAILABLE), (3, answer), (2, UNAVAILABLE)).down


def test_deferred_says_nothing_because_nothing_was_sent():
    assert health_after((1, UNAVAILABLE), (3, DEFERRED), (2, UNAVAILABLE), (4, DEFERRED)).down


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(Disposition)), max_size=30))
def test_down_means_unavailable_over_two_rows_since_the_last_answer(notes: list[tuple[int, Disposition]]):
    rows: set[int] = set()
    for row_id, disposition in notes:
        if disposition in ANSWERS:
            rows.clear()
        elif disposition is UNAVAILABLE:
            rows.add(row_id)
    health = health_after(*notes)
    assert health.down == (len(rows) >= 2)
    assert (health.since is not None) == bool(rows)


def test_an_idle_dispatcher_forgets_an_outage():
    """Two rows that failed, or were cancelled, are no outage for ever: nobody asks the API any more."""
    now = [T0]

    class Clock:
        def now(self) -> datetime:
            return now[0]

    health = ApiHealth(Clock(), lapses_after_s=150)
    for row_id in (1, 2):
        health.note(row_id, Disposition.UNAVAILABLE, "connection refused", T0)
    now[0] = T0 + timedelta(seconds=150)
    assert health.down
    now[0] = T0 + timedelta(seconds=151)
    assert not health.down
    assert health.since is None
