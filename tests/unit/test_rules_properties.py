"""What holds of every decision, whatever the outcomes (R4–R8)."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.rules import (
    Disposition,
    Fail,
    Outcome,
    Place,
    Policy,
    ReOffer,
    Row,
    Verdict,
    decide,
    go_duration,
    hold_s,
)
from tests.unit.ride import DEFERRED, PLACED, at, backpressure, offers, outcome, rejected, unavailable

POLICY = Policy()

policies = st.builds(
    Policy,
    window_s=st.floats(1, 3000),
    hold_min_s=st.floats(0.1, 20),
    hold_max_s=st.floats(30, 120),
    offer_lead_s=st.floats(0, 9),
    attempts=st.integers(1, 10),
    backoff_s=st.floats(0.1, 20),
)
moments = st.floats(0, 5000).map(at)
rows = st.builds(Row, dispatch_attempts=st.integers(0, 5), dispatch_unavailable_since=st.none() | moments)
verdicts = st.one_of(
    st.sampled_from([unavailable(), backpressure(), rejected(), DEFERRED, PLACED]),
    st.floats(0, 1e6).map(backpressure),
)
outcomes = st.builds(outcome, verdicts, st.floats(0, 5000), st.floats(0, 60))


@given(age_s=st.floats(-1e6, 1e6), policy=policies)
def test_R5_a_hold_stays_within_its_bounds(age_s: float, policy: Policy):
    assert policy.hold_min_s <= hold_s(age_s, policy) <= policy.hold_max_s - policy.offer_lead_s


@given(younger=st.floats(0, 5000), older=st.floats(0, 5000))
def test_R5_a_longer_outage_never_holds_for_less(younger: float, older: float):
    younger, older = sorted((younger, older))
    assert hold_s(younger, POLICY) <= hold_s(older, POLICY)


@given(row=rows, out=outcomes, policy=policies)
def test_every_outcome_has_a_decision_that_lies_ahead(row: Row, out: Outcome, policy: Policy):
    decision = decide(row, out, policy)
    match decision:
        case ReOffer():
            assert decision.next_offer_at > out.ended_at
            longest = max(policy.hold_max_s, policy.backpressure_max_s, policy.backoff_s * 2**10)
            assert decision.next_offer_at <= out.ended_at + timedelta(seconds=longest)
            assert decision.dispatch_attempts < max(policy.attempts, row.dispatch_attempts + 1)
            assert decision.reason.startswith("held: ")
        case Fail():
            assert decision.reason.startswith("dispatch_failed: ")
            assert out.verdict.disposition in (Disposition.UNAVAILABLE, Disposition.REJECTED)
        case Place():
            assert out.verdict.disposition is Disposition.PLACED


@given(row=rows, started_s=st.floats(0, 5000), took_s=st.floats(0, 60), policy=policies)
def test_R5_an_unavailable_row_waits_at_least_the_shortest_hold_after_failing(
    row: Row, started_s: float, took_s: float, policy: Policy
):
    out = outcome(unavailable(), started_s, took_s)
    decision = decide(row, out, policy)
    if isinstance(decision, ReOffer):
        waits_s = (decision.next_offer_at - out.ended_at).total_seconds()
        assert waits_s >= policy.hold_min_s - 1e-5
        hung = took_s > policy.hold_max_s - policy.offer_lead_s - policy.hold_min_s
        since_start_s = (decision.next_offer_at - out.started_at).total_seconds()
        assert hung or since_start_s <= policy.hold_max_s - policy.offer_lead_s + 1e-5


@given(row=rows, out=outcomes)
def test_R8_no_decision_moves_the_outages_start(row: Row, out: Outcome):
    """It is stamped when it is null, kept, or cleared: never pushed back, or the window would never end."""
    decision = decide(row, out, POLICY)
    if isinstance(decision, ReOffer | Fail):
        since = decision.dispatch_unavailable_since
        stamped = row.dispatch_unavailable_since is None and out.verdict.disposition is Disposition.UNAVAILABLE
        assert since in (None, row.dispatch_unavailable_since) or (stamped and since == out.ended_at)


@given(row=rows, started_s=st.floats(0, 5000))
def test_R6_only_a_rejection_spends_an_attempt(row: Row, started_s: float):
    for verdict in (unavailable(), backpressure(), DEFERRED):
        decision = decide(row, outcome(verdict, started_s), POLICY)
        assert isinstance(decision, ReOffer | Fail)
        assert decision.dispatch_attempts == row.dispatch_attempts


@settings(max_examples=200, deadline=None)
@given(shorter=st.integers(1, 1200), longer=st.integers(1, 1200), due=st.integers(0, 1200), took_s=st.integers(0, 15))
def test_a_longer_outage_never_ends_better(shorter: int, longer: int, due: int, took_s: int):
    """For a row due at any moment of an outage that begins at 0."""
    shorter, longer = sorted((shorter, longer))

    def fails(length: int) -> bool:
        def api(now_s: float) -> tuple[Verdict, float]:
            return (unavailable(), took_s) if now_s < length else (PLACED, 0)

        return isinstance(list(offers(api, first_s=due))[-1].decision, Fail)

    assert fails(shorter) <= fails(longer)
    if longer - due <= 900:
        assert not fails(longer), "R4: nothing fails that rode for less than the window"
    if longer - due > 960 + 2 * took_s:
        assert fails(longer)


@settings(max_examples=200, deadline=None)
@given(ends_s=st.floats(0, 899), took_s=st.sampled_from([0.0, 0.1, 1.0, 10.0, 15.0]), wait_s=st.floats(0, 3))
def test_R5_a_recovery_is_noticed_within_a_minute(ends_s: float, took_s: float, wait_s: float):
    def api(now_s: float) -> tuple[Verdict, float]:
        return (unavailable(), took_s) if now_s < ends_s else (PLACED, 0)

    last = list(offers(api, wait_s=wait_s))[-1]
    assert isinstance(last.decision, Place)
    assert last.at_s - ends_s <= 60 + 1e-5


@given(st.floats(0, 1e7), st.floats(0, 1e7))
def test_R4_a_duration_reads_back_as_whole_seconds(one: float, other: float):
    units = {"h": 3600, "m": 60, "s": 1}

    def seconds(text: str) -> int:
        total, digits = 0, ""
        for character in text:
            if character in units:
                total, digits = total + int(digits) * units[character], ""
            else:
                digits += character
        return total

    assert seconds(go_duration(one)) == int(one)
    assert (one <= other) <= (seconds(go_duration(one)) <= seconds(go_duration(other)))
