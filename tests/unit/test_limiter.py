"""The client's own rate limiter: Deferred instead of a long queue, in the order of asking (R1, C38, C80)."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.executors.limiter import RateLimiter
from dispatcher.rules import Disposition
from tests.faults.answers import accepts_all
from tests.faults.client import ATTEMPT, Client
from tests.faults.server import FaultServer


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time jumps to the next timer instead of waiting for it: no test of a pause takes one."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        timers = [timer.when() for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        if not self._ready and timers:  # type: ignore[attr-defined]
            self._now = max(self._now, min(timers))
        super()._run_once()  # type: ignore[misc]


def admitted_at(limiter: RateLimiter, asked_at: list[float]) -> list[float | None]:
    """When each of these was let through; None for a refusal. Asked in this order, at these times."""

    async def ask(when: float) -> float | None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(when - loop.time())
        return loop.time() if await limiter.admit() else None

    async def all_of_them() -> list[float | None]:
        return await asyncio.gather(*(ask(when) for when in asked_at))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(all_of_them())


def test_the_burst_goes_at_once_then_the_rate_applies_then_it_is_refused():
    times = admitted_at(RateLimiter(rate=10, burst=5, max_wait_s=0.25), [0.0] * 10)
    assert times[:5] == [0.0] * 5
    assert times[5:7] == pytest.approx([0.1, 0.2])
    assert times[7:] == [None] * 3


def test_a_refusal_books_nothing():
    """Else those that are refused would push everybody after them back for ever."""
    limiter = RateLimiter(rate=10, burst=1, max_wait_s=0.1)
    times = admitted_at(limiter, [0.0] * 100 + [0.2])
    assert sum(time is not None for time in times[:100]) == 2
    assert times[100] == pytest.approx(0.2)


def test_an_idle_limiter_fills_up_to_its_burst_and_no_further():
    times = admitted_at(RateLimiter(rate=10, burst=2, max_wait_s=0), [100.0, 100.001, 100.002, 100.003])
    assert times == [100.0, 100.001, None, None]


def test_the_last_of_a_burst_is_not_refused_for_a_rounding_error():
    """Places are sums of fractions: with rate 11 and no wait allowed, the last of nine came out a hair too late."""
    assert None not in admitted_at(RateLimiter(rate=11, burst=9, max_wait_s=0), [100.0] * 9)


def test_a_rate_of_zero_is_no_limit():
    assert None not in admitted_at(RateLimiter(rate=0, burst=1, max_wait_s=0), [0.0] * 10_000)


@settings(max_examples=100, deadline=None)
@given(
    rate=st.floats(0.5, 1000),
    burst=st.integers(1, 50),
    max_wait_s=st.floats(0, 3),
    asked_at=st.lists(st.integers(0, 20_000), max_size=60, unique=True).map(
        lambda ms: [one / 1000 for one in sorted(ms)]
    ),
)
def test_never_more_than_burst_and_rate_allow_and_never_a_longer_wait(
    rate: float, burst: int, max_wait_s: float, asked_at: list[float]
):
    times = admitted_at(RateLimiter(rate, burst, max_wait_s), asked_at)
    admitted = [time for time in times if time is not None]
    assert admitted == sorted(admitted), "in the order of asking"
    for time, asked in zip(times, asked_at, strict=True):
        if time is not None:
            assert time - asked <= max_wait_s + 1e-6
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            span_s = admitted[last] - admitted[first]
            assert last - first + 1 <= burst + span_s * rate + 1 + 1e-6


def test_C38_the_limiters_refusal_is_deferred_and_nothing_was_sent(kubeconfig: Path, server: FaultServer):
    server.play(accepts_all())
    with Client(kubeconfig, limiter=RateLimiter(rate=0.001, burst=1, max_wait_s=0)) as client:
        assert client.create().verdict.disposition is Disposition.PLACED
        outcome = client.create()
    assert outcome.verdict.disposition is Disposition.DEFERRED
    assert not outcome.verdict.may_exist
    assert len(server.posts) == 1


def test_C80_a_flood_after_an_outage_is_placed_or_deferred(kubeconfig: Path, server: FaultServer):
    server.play(accepts_all())
    with Client(kubeconfig, limiter=RateLimiter(rate=1, burst=40, max_wait_s=0.5), deadline_s=20) as client:

        async def flood() -> list[Disposition]:
            outcomes = await asyncio.gather(*(client.executor.create(ATTEMPT) for _ in range(200)))
            return [outcome.verdict.disposition for outcome in outcomes]

        dispositions = client.run(flood())
    assert dispositions.count(Disposition.PLACED) in (40, 41)
    assert dispositions.count(Disposition.DEFERRED) == 200 - dispositions.count(Disposition.PLACED)
    assert len(server.posts) == dispositions.count(Disposition.PLACED)
