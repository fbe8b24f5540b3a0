"""The decision, rule by rule (R4–R8)."""

from datetime import datetime, timedelta
from itertools import islice, pairwise

import pytest

from dispatcher.rules import (
    Disposition,
    Fail,
    Place,
    Policy,
    Rank,
    ReOffer,
    Row,
    Verdict,
    backoff_s,
    decide,
    go_duration,
    hold_s,
    would_fail_at,
)
from tests.unit.ride import (
    DEFERRED,
    PLACED,
    T0,
    at,
    backpressure,
    offers,
    outcome,
    rejected,
    since_t0,
    unavailable,
)

POLICY = Policy()
WINDOW_S = 900.0
RIDING = Row(dispatch_attempts=2, dispatch_unavailable_since=T0)


def re_offer(row: Row, verdict: Verdict, started_s: float, took_s: float = 0.0, policy: Policy = POLICY) -> ReOffer:
    decision = decide(row, outcome(verdict, started_s, took_s), policy)
    assert isinstance(decision, ReOffer), decision
    return decision


def failed(row: Row, verdict: Verdict, started_s: float, took_s: float = 0.0, policy: Policy = POLICY) -> Fail:
    decision = decide(row, outcome(verdict, started_s, took_s), policy)
    assert isinstance(decision, Fail), decision
    return decision


# R4: the window


@pytest.mark.parametrize("started_s", [0, 1, 899, 899.999999])
def test_R4_a_create_that_starts_within_the_window_never_fails_the_row(started_s: float):
    assert re_offer(RIDING, unavailable(), started_s).dispatch_unavailable_since == T0


@pytest.mark.parametrize("started_s", [900, 900.000001, 901, 961, 86_400])
def test_R4_a_create_that_starts_at_the_window_or_past_it_fails_the_row(started_s: float):
    assert failed(RIDING, unavailable(), started_s).dispatch_unavailable_since == T0


def test_R4_it_is_the_start_that_counts_so_a_create_may_hang_past_the_window():
    decision = re_offer(RIDING, unavailable(), started_s=899, took_s=15)  # ends at 15:14
    assert since_t0(decision.next_offer_at) == 956
    assert failed(RIDING, unavailable(), 956).reason.startswith("dispatch_failed")


def test_R4_the_window_starts_with_the_first_failure_not_with_the_first_offer():
    first = re_offer(Row(), unavailable(), started_s=0, took_s=15)
    assert first.dispatch_unavailable_since == at(15)
    row = Row(0, first.dispatch_unavailable_since)
    assert isinstance(decide(row, outcome(unavailable(), 914.9), POLICY), ReOffer)
    assert isinstance(decide(row, outcome(unavailable(), 915), POLICY), Fail)


def test_R4_a_first_failure_never_fails_the_row_however_long_it_took():
    assert re_offer(Row(), unavailable(), 0, took_s=10_000).dispatch_unavailable_since == at(10_000)


@pytest.mark.parametrize(
    ("cause", "started_s", "took_s", "reason"),
    [
        ("503 ServiceUnavailable", 904, 0, "Kubernetes API unavailable for 15m4s: 503 ServiceUnavailable"),
        ("connection refused", 900, 0, "Kubernetes API unavailable for 15m0s: connection refused"),
        ("deadline exceeded after 15s", 900, 15, "Kubernetes API unavailable for 15m15s: deadline exceeded after 15s"),
        ("webhook unreachable", 959.99, 0, "Kubernetes API unavailable for 15m59s: webhook unreachable"),
        ("500 without a known reason", 4500, 0, "Kubernetes API unavailable for 1h15m0s: 500 without a known reason"),
    ],
)
def test_R4_the_reason_word_for_word(cause: str, started_s: float, took_s: float, reason: str):
    assert failed(RIDING, unavailable(cause), started_s, took_s).reason == f"dispatch_failed: {reason}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.999, "0s"),
        (-3, "0s"),
        (9, "9s"),
        (59.9, "59s"),
        (60, "1m0s"),
        (904.7, "15m4s"),
        (3599, "59m59s"),
        (3600, "1h0m0s"),
        (3661, "1h1m1s"),
        (90_061, "25h1m1s"),
    ],
)
def test_R4_durations_as_go_writes_them(seconds: float, text: str):
    """golang.org/pkg/time, Duration.String, of whole seconds."""
    assert go_duration(seconds) == text


def test_R4_only_unavailable_is_judged_by_the_window():
    for verdict in (backpressure(), rejected(), DEFERRED):
        assert isinstance(decide(RIDING, outcome(verdict, 10_000), POLICY), ReOffer)


def test_R4_would_fail_at_is_the_first_start_that_fails():
    moment = would_fail_at(T0, POLICY)
    assert since_t0(moment) == WINDOW_S
    assert isinstance(decide(RIDING, outcome(unavailable(), WINDOW_S), POLICY), Fail)


# R5: the hold


def test_R5_offers_from_instant_failures_come_at_0_5_10_20_40_80_137_194():
    times = [offer.at_s for offer in offers(lambda _: (unavailable(), 0))]
    assert times[:8] == [0, 5, 10, 20, 40, 80, 137, 194]
    assert all(later - earlier == 57 for earlier, later in pairwise(times[6:]))
    assert 900 <= times[-1] < 957


@pytest.mark.parametrize(
    ("age_s", "hold"), [(0, 5), (4.9, 5), (5, 5), (5.1, 5.1), (30, 30), (57, 57), (57.1, 57), (899, 57), (-10, 5)]
)
def test_R5_the_hold_is_the_outages_age_between_5_and_57_seconds(age_s: float, hold: float):
    assert hold_s(age_s, POLICY) == hold


def test_R5_the_hold_counts_from_the_start_of_a_create_that_hung():
    decision = re_offer(RIDING, unavailable(), started_s=100, took_s=15)
    assert since_t0(decision.next_offer_at) == 157, "its age is taken at the failure: 57, counted from 100"


def test_R5_the_age_is_taken_at_the_failure():
    assert since_t0(re_offer(RIDING, unavailable(), started_s=20, took_s=15).next_offer_at) == 55


def test_R5_never_sooner_than_5_seconds_after_failing():
    first = re_offer(Row(), unavailable(), started_s=0, took_s=15)
    assert since_t0(first.next_offer_at) == 20
    slow = re_offer(RIDING, unavailable(), started_s=100, took_s=56)
    assert since_t0(slow.next_offer_at) == 161


def test_R5_a_hanging_api_is_asked_again_within_a_minute_of_every_create():
    made = list(offers(lambda _: (unavailable("deadline exceeded after 15s"), 15.0)))
    starts = [offer.at_s for offer in made]
    assert starts[:4] == [0, 20, 40, 80]
    assert max(later - earlier for earlier, later in pairwise(starts)) == 57
    assert isinstance(made[-1].decision, Fail)
    assert 915 <= starts[-1] <= 915 + 57


# R6: the attempt budget


def test_R6_six_attempts_5_10_20_40_80_seconds_apart():
    made = list(offers(lambda _: (rejected(), 0)))
    assert [offer.at_s for offer in made] == [0, 5, 15, 35, 75, 155]
    assert [offer.row.dispatch_attempts for offer in made[:-1]] == [1, 2, 3, 4, 5]
    last = made[-1].decision
    assert last == Fail("dispatch_failed: rejected 6 times: 422 Invalid", 6, None)


def test_R6_the_backoff_counts_from_the_end_of_the_create():
    assert since_t0(re_offer(Row(), rejected(), started_s=0, took_s=3).next_offer_at) == 8
    assert [backoff_s(n, POLICY) for n in range(1, 6)] == [5, 10, 20, 40, 80]


def test_R6_the_reason_holds_the_cause_and_the_apis_own_words():
    verdict = rejected("403 Forbidden", 'pods "p" is forbidden: no')
    row = Row(dispatch_attempts=5)
    assert failed(row, verdict, 0).reason == (
        'dispatch_failed: rejected 6 times: 403 Forbidden: pods "p" is forbidden: no'
    )
    assert re_offer(Row(), verdict, 0).reason == 'held: rejected 1 of 6 times: 403 Forbidden: pods "p" is forbidden: no'


def test_R6_attempts_are_counted_over_the_whole_episode_not_in_a_row():
    answers = iter([rejected(), unavailable(), rejected(), backpressure(), rejected(), DEFERRED, *[rejected()] * 3])
    made = list(offers(lambda _: (next(answers), 0)))
    assert isinstance(made[-1].decision, Fail)
    assert made[-1].decision.reason.startswith("dispatch_failed: rejected 6 times")


# Backpressure


@pytest.mark.parametrize(
    ("retry_after_s", "wait_s"), [(None, 10), (0, 10), (9, 10), (10, 10), (11, 11), (60, 60), (61, 60), (86_400, 60)]
)
def test_backpressure_waits_10_seconds_or_what_the_api_asks_up_to_60(retry_after_s: float | None, wait_s: float):
    decision = re_offer(RIDING, backpressure(retry_after_s), started_s=100, took_s=2)
    assert since_t0(decision.next_offer_at) == 102 + wait_s
    assert decision.rank is Rank.REFUSED


def test_backpressure_is_re_offered_for_ever():
    made = list(islice(offers(lambda _: (backpressure(), 0), most=5000), 5000))
    assert len(made) == 5000
    assert made[-1].row == Row(0, None)


# Deferred


def test_deferred_comes_back_with_the_next_tick():
    assert since_t0(re_offer(RIDING, DEFERRED, 100).next_offer_at) == 101


# R8: what happens to the outage's start


@pytest.mark.parametrize("before", [None, T0], ids=["null", "stamped"])
@pytest.mark.parametrize(
    ("verdict", "after"),
    [
        (unavailable(), {"null": at(12), "stamped": T0}),
        (backpressure(), {"null": None, "stamped": None}),
        (DEFERRED, {"null": None, "stamped": T0}),
        (rejected(), {"null": None, "stamped": None}),
    ],
    ids=["unavailable", "backpressure", "deferred", "rejected"],
)
def test_R8_stamped_kept_or_cleared(verdict: Verdict, after: dict[str, datetime | None], before: datetime | None):
    decision = re_offer(Row(3, before), verdict, started_s=10, took_s=2)
    assert decision.dispatch_unavailable_since == after["stamped" if before else "null"]
    spent = 4 if verdict.disposition is Disposition.REJECTED else 3
    assert decision.dispatch_attempts == spent, "only a rejection spends an attempt"


def test_R8_an_answer_starts_a_new_window():
    """C57: throttled rows do not fail although the API fails them every other time."""
    answers = iter(range(10_000))
    made = list(offers(lambda _: (unavailable() if next(answers) % 2 else backpressure(), 0), most=300))
    assert len(made) == 300
    assert made[-1].at_s > 2 * WINDOW_S


def test_placed_names_the_pod():
    assert decide(RIDING, outcome(PLACED, 5000), POLICY) == Place("pod", "uid")


# R18: who goes first


@pytest.mark.parametrize(
    ("row", "verdict", "started_s", "rank"),
    [
        (Row(), unavailable(), 0, Rank.HELD),
        (RIDING, unavailable(), 700, Rank.HELD),
        (RIDING, unavailable(), 782.9, Rank.HELD),
        (RIDING, unavailable(), 783, Rank.FIRST),
        (RIDING, unavailable(), 899, Rank.FIRST),
        (Row(), rejected(), 0, Rank.HELD),
        (Row(), backpressure(), 0, Rank.REFUSED),
        (Row(), DEFERRED, 0, Rank.FIRST),
        (Row(rank=Rank.HELD), DEFERRED, 0, Rank.HELD),
        (Row(rank=Rank.REFUSED), DEFERRED, 0, Rank.REFUSED),
    ],
)
def test_R18_rows_near_the_end_of_their_window_go_first(row: Row, verdict: Verdict, started_s: float, rank: Rank):
    assert re_offer(row, verdict, started_s).rank is rank


# The rule from before the decision


def test_attempts_only_spends_an_attempt_on_an_outage_and_fails_after_2m35s():
    policy = Policy(unavailable_spends_attempts=True)
    made = list(offers(lambda _: (unavailable(), 0), policy=policy))
    assert [offer.at_s for offer in made] == [0, 5, 15, 35, 75, 155]
    assert made[-1].decision == Fail("dispatch_failed: rejected 6 times: 503 ServiceUnavailable", 6, None)
    assert all(offer.row.dispatch_unavailable_since is None for offer in made)


def test_other_constants_are_obeyed():
    quick = Policy(window_s=90, hold_min_s=0.5, hold_max_s=6, offer_lead_s=0.3, attempts=3, backoff_s=0.5, tick_s=0.1)
    times = [offer.at_s for offer in offers(lambda _: (unavailable(), 0), policy=quick)]
    assert times[:7] == pytest.approx([0, 0.5, 1, 2, 4, 8, 13.7])
    assert 90 <= times[-1] < 96
    assert [offer.at_s for offer in offers(lambda _: (rejected(), 0), policy=quick)] == [0, 0.5, 1.5]
    assert re_offer(Row(), DEFERRED, 0, policy=quick).next_offer_at - T0 == timedelta(seconds=0.1)
