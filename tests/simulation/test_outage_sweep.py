"""Outages from a second to twenty minutes: longer ones never end better, and none under a window fails a task.

What is drawn for a create depends on its row and epoch only, so two outages of the same mix are the same up to the
end of the shorter one: what failed in it fails in the longer one too, row by row.
"""

from dataclasses import dataclass

import pytest

from dispatcher.settings import Mode
from tests.simulation.agents import Plan
from tests.simulation.faults import MIXES, UP, Mix
from tests.simulation.ground import Creation
from tests.simulation.lasting import Lasting
from tests.simulation.run import play
from tests.simulation.world import World

WINDOW_S, HOLD_MAX_S, DEADLINE_S, TICK_S, LIMITER_S, BUFFER_S = 900, 60, 15, 1, 2, 10
LENGTHS = (1, 30, 155, 600, 890, 899, 901, 930, 960, 995, 1200)
DUE = (0, 0, 20, 240, 850)
"""When the rows are due, in seconds from the beginning of the outage."""

ALWAYS = ("503", "connect hangs", "unavailable, nothing stored")
NIGHTLY = ("refused", "webhook")
UNAVAILABLE = (*ALWAYS, *NIGHTLY)
OTHER = ("answers lost", "throttled and down")
OTHER_NIGHTLY = ("hangs", "every unavailable", "flapping")


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of an outage."""

    healed_at: float
    failed: dict[int, float]
    """Rows that failed, and when."""
    reasons: dict[int, str]
    slowest_s: float
    """From the API's return to the first answered offer of the slowest row that was due then."""


def ride_out(lasting: Lasting, mode: Mode, mix: Mix, length: float) -> Ended:
    began = healed = 0.0

    async def outage(world: World) -> None:
        nonlocal began, healed
        await world.until(lambda: world.replicas[0].leads, "a leader")
        world.api(mix)
        world.cluster.jitter_s = 0.0  # rows that are due together stay together: one claim, one write
        began = world.now
        for due in sorted(DUE):
            if due >= length:
                break
            await world.advance(began + due - world.now)
            await world.submit([Plan(3.0)], retries=2)
        await world.advance(began + length - world.now)
        world.api(UP)
        healed = world.now

    world = play(lasting, outage, mode=mode)
    rows = world.judge.rows
    failed = {row.id: (row.ended_at or 0.0) - began for row in rows.values() if row.state == "failed"}
    waited = [_answered(world.ground.notes.creations, row, healed) - healed for row in rows]
    return Ended(healed, failed, {row: rows[row].reason or "" for row in failed}, max(waited, default=0.0))


def _answered(creations: list[Creation], row: int, healed: float) -> float:
    """When the row's first create after the healing was answered; at once, if it had none to make any more."""
    mine = [one for one in creations if one.row == row and one.called_at >= healed]
    return mine[0].returned_at or float("inf") if mine else healed


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    "mix",
    [*ALWAYS, *OTHER, *(pytest.param(mix, marks=pytest.mark.slow) for mix in (*NIGHTLY, *OTHER_NIGHTLY))],
)
def test_a_longer_outage_never_ends_better(lasting: Lasting, mode: Mode, mix: str):
    before: set[int] = set()
    for length in LENGTHS:
        ended = ride_out(lasting, mode, MIXES[mix], length)
        assert before <= set(ended.failed), f"{length} s: rows {before - set(ended.failed)} failed in a shorter one"
        before = set(ended.failed)
        if length < WINDOW_S:
            assert not before, f"{length} s: {ended.reasons}"
        last = WINDOW_S + HOLD_MAX_S + 2 * (DEADLINE_S + TICK_S + LIMITER_S)
        last += 2 * BUFFER_S if mode is Mode.BUFFERED else 0
        for row, at in ended.failed.items():
            assert DUE[row - 1] + WINDOW_S <= at <= DUE[row - 1] + last, f"{length} s: row {row} failed at {at:.3f} s"
        if mix in UNAVAILABLE:
            assert ended.slowest_s <= 60, f"{length} s: a row waited {ended.slowest_s:.3f} s after the API's return"
            if length > WINDOW_S + HOLD_MAX_S + 2 * DEADLINE_S:
                due_first = {row for row, due in enumerate(DUE, start=1) if due == 0}
                assert due_first <= before, f"{length} s: a row that was due at its start has not failed"


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(("age_s", "fails"), [(899, False), (900, True), (901, True)])
def test_R4_decides_by_the_start_of_the_create(lasting: Lasting, mode: Mode, age_s: int, fails: bool):
    """14:59, 15:00 and 15:01 after the first failure, to the microsecond: an operator's pause holds the row so long."""

    async def edge(world: World) -> None:
        world.cluster.jitter_s = 0.0
        world.api(Mix("503 at once", {"503 at once": 1}))
        await world.submit([Plan(1.0)], retries=1)
        await world.until(lambda: world.judge.rows[1].since is not None, "the first failure")
        since = world.judge.rows[1].since or 0.0
        await world.pause()
        await world.advance(since + age_s - 0.5 - world.now)
        await world.resume()
        await world.advance(1)
        row = world.judge.rows[1]
        create = world.ground.notes.creations[-1]
        assert create.called_at - since == pytest.approx(age_s, abs=1e-5)
        assert (row.state == "failed") == fails
        if fails:
            minutes = f"15m{age_s - 900}s"
            said = f"dispatch_failed: Kubernetes API unavailable for {minutes}: 503 ServiceUnavailable"
            assert (row.reason, row.max_tries) == (said, 1)

    play(lasting, edge, mode=mode, finish=not fails)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(("age_s", "fails"), [(885, False), (899, False), (900, True)])
def test_R4_a_create_that_began_within_the_window_may_hang_past_its_end(
    lasting: Lasting, mode: Mode, age_s: int, fails: bool
):
    async def edge(world: World) -> None:
        world.cluster.jitter_s = 0.0
        world.api("connect hangs")
        await world.submit([Plan(1.0)])
        await world.until(lambda: world.judge.rows[1].since is not None, "the first failure")
        since = world.judge.rows[1].since or 0.0
        await world.pause()
        await world.advance(since + age_s - 0.5 - world.now)
        await world.resume()
        await world.advance(0.6)
        assert world.ground.notes.creations[-1].called_at - since == pytest.approx(age_s, abs=1e-5)
        await world.advance(15)
        row = world.judge.rows[1]
        assert (row.state == "failed") == fails
        if fails:
            said = "dispatch_failed: Kubernetes API unavailable for 15m15s: deadline exceeded after 15s"
            assert row.reason == said

    play(lasting, edge, mode=mode)
