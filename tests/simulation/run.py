"""Play one schedule, written as a coroutine, in a world of its own."""

from collections.abc import Awaitable, Callable

import pytest

from dispatcher.settings import Mode
from tests.broken import Put
from tests.simulation.lasting import Lasting
from tests.simulation.world import World, simulated

Schedule = Callable[[World], Awaitable[None]]


def play(
    lasting: Lasting,
    schedule: Schedule,
    *,
    mode: Mode = Mode.TICK,
    replicas: int = 1,
    slots: int = 8,
    seed: int = 7,
    wrong: Callable[[Put], None] = lambda put: None,
    finish: bool = True,
) -> World:
    """:param wrong: makes the dispatcher a wrong one, before it starts.
    :param finish: heal and let every row end, as random schedules do.
    :raises Violated: an invariant did not hold."""
    world = World(lasting.loop, lasting.engine, lasting.admin, seed=seed, mode=mode, replicas=replicas, slots=slots)

    async def go() -> None:
        try:
            await world.begin()
            await schedule(world)
            if finish:
                await world.finish()
        finally:
            await world.close()

    with simulated(world), pytest.MonkeyPatch.context() as patch:
        wrong(patch.setattr)
        lasting.loop.run_until_complete(go())
    return world
