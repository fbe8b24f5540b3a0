"""Public reports longer than a window, on paper: the verdict of a real answer, carried through 15 minutes (R4, R5).

The same runs on a real database, with crashes and agents, are in `tests/simulation`.
"""

import socket
from pathlib import Path

import pytest

from dispatcher.rules import Disposition, Fail, Place, Policy, Row, Verdict, decide
from tests.faults.answers import accepts_all
from tests.faults.cases import BACKPRESSURE, UNAVAILABLE, Step, from_file
from tests.faults.client import Client, write_kubeconfig
from tests.faults.server import FaultServer, Peer
from tests.unit.conftest import TlsFiles
from tests.unit.ride import T0, Offer, offers, outcome, rejected, unavailable

MINUTE = 60.0


@pytest.fixture
def verdict_of(client: Client, server: FaultServer):
    """What the real client makes of one answer."""

    def classify(step: Step | None) -> Verdict:
        async def script(peer: Peer) -> None:
            await peer.tls()
            request = await peer.request()
            assert step is not None
            await peer.send(step.answer(request))
            await peer.closed_by_client()

        server.play(accepts_all() if step is None else script)
        verdict = client.create().verdict
        assert verdict.disposition is (Disposition.PLACED if step is None else step.expect)
        return verdict

    return classify


def last(made: list[Offer]) -> Offer:
    assert len(made) < 200, "it never ended"
    return made[-1]


@pytest.mark.parametrize("took_s", [10.0, 14.0, 15.0])
def test_C09_a_webhook_behind_a_dead_connection_for_17_minutes(took_s: float, verdict_of):
    """Each create answers 500 after its time-out. A row due at the start fails by R4; one due later survives."""
    failing, placed = verdict_of(from_file("C09", UNAVAILABLE)), verdict_of(None)

    def api(now_s: float) -> tuple[Verdict, float]:
        return (failing, took_s) if now_s < 17 * MINUTE else (placed, 0)

    fails = last(list(offers(api)))
    assert isinstance(fails.decision, Fail)
    assert fails.decision.reason.startswith("dispatch_failed: Kubernetes API unavailable for 15m")
    assert fails.decision.reason.endswith(": webhook unreachable")
    assert 15 * MINUTE <= fails.at_s < 16 * MINUTE + took_s
    assert isinstance(last(list(offers(api, first_s=5 * MINUTE))).decision, Place)


def test_C57_503_and_429_alternating_for_20_minutes_never_fail_a_row(verdict_of):
    busy, throttled = verdict_of(from_file("C75", UNAVAILABLE)), verdict_of(from_file("C57", BACKPRESSURE))
    placed = verdict_of(None)
    asked = iter(range(1000))

    def api(now_s: float) -> tuple[Verdict, float]:
        if now_s >= 20 * MINUTE:
            return placed, 0
        return (throttled if next(asked) % 2 else busy), 0

    made = list(offers(api))
    assert isinstance(last(made).decision, Place)
    assert made[-1].at_s - 20 * MINUTE <= MINUTE
    assert all(offer.row.dispatch_attempts == 0 for offer in made)


@pytest.fixture
def refused(tls_files: TlsFiles, tmp_path: Path) -> Verdict:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        kubeconfig = write_kubeconfig(tmp_path / "refused", f"https://127.0.0.1:{taken.getsockname()[1]}", tls_files.ca)
        with Client(kubeconfig) as client:
            return client.create().verdict


def test_C74_25_minutes_of_refusals_fail_what_was_due_at_their_start_and_not_what_came_at_minute_11(
    refused: Verdict, verdict_of
):
    placed = verdict_of(None)

    def api(now_s: float) -> tuple[Verdict, float]:
        return (refused, 0) if now_s < 25 * MINUTE else (placed, 0)

    fails = last(list(offers(api)))
    assert isinstance(fails.decision, Fail)
    assert fails.decision.reason.endswith(": connection refused")
    assert 15 * MINUTE <= fails.at_s < 16 * MINUTE
    assert fails.row.dispatch_attempts == 0, "no other budget was touched"
    assert isinstance(last(list(offers(api, first_s=11 * MINUTE))).decision, Place)


@pytest.mark.parametrize("length_s", [14 * MINUTE + 59, 15 * MINUTE, 15 * MINUTE + 1])
def test_C74_an_outage_about_as_long_as_the_window(length_s: float, refused: Verdict, verdict_of):
    """Its offers fall at 878 and 935 s: a row fails only if its first offer past the window is still Unavailable."""
    good = verdict_of(None)
    end = last(list(offers(lambda now_s: (refused, 0) if now_s < length_s else (good, 0))))
    assert isinstance(end.decision, Place)
    assert end.at_s == pytest.approx(935)


@pytest.mark.parametrize(("started_s", "fails"), [(899, False), (900, True), (901, True)])
def test_C74_14m59_15m00_15m01_between_the_first_failure_and_an_offers_start(started_s: float, fails: bool):
    """The last offer starts that long after the outage began for this row, and hangs for 15 s."""
    hangs = outcome(unavailable("deadline exceeded after 15s"), started_s, took_s=15)
    assert isinstance(decide(Row(0, T0), hangs, Policy()), Fail) is fails


def test_C13_a_poison_condition_that_always_answers_500_ends_like_an_outage(verdict_of):
    failing = verdict_of(from_file("C13", UNAVAILABLE))
    end = last(list(offers(lambda _: (failing, 0))))
    assert isinstance(end.decision, Fail)
    assert 15 * MINUTE <= end.at_s < 16 * MINUTE


def test_C39_a_restart_that_answers_403_for_two_minutes_costs_attempts_not_the_row():
    """R3: it is a rejection. Six attempts last 2m35s; longer, and it fails (the runbook says what to do)."""

    def until(length_s: float) -> Offer:
        placed = Verdict(Disposition.PLACED, "201 Created", "R1", True, pod_name="p", pod_uid="u")
        return last(list(offers(lambda now_s: (rejected("403 Forbidden"), 0) if now_s < length_s else (placed, 0))))

    assert isinstance(until(120).decision, Place)
    assert isinstance(until(156).decision, Fail)
