"""Each fault of the connections to the API: a client of the suite sees it, it heals, and sabotaged it did not fire."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from chaos import faults
from chaos.errors import ChaosError
from chaos.faults import Ground
from chaos.faults.latency import DELAY_S
from chaos.history import History
from chaos.probe import Probe
from chaos.testbed import Testbed
from chaos.undo import replay
from tests.cluster.helpers import fired, quickly_not_seen

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
LANES = ("buffered", "tick")
SEEN = {
    "connections-reset": "Reset",
    "black-hole": "deadline exceeded",
    "slow-drip": "deadline exceeded",
}


@pytest.fixture(scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    directory = tmp_path_factory.mktemp("connections")
    mono, wall = time.monotonic(), time.time()
    async with AsyncExitStack() as stack:
        history = stack.enter_context(History(directory / "history.jsonl", mono))
        bed = await stack.enter_async_context(Testbed.start(directory, lanes=LANES, in_process=True))
        probe = await stack.enter_async_context(
            Probe.watching(bed.kubeconfig("probe"), bed.namespaces, history, interval_s=0.5)
        )
        yield Ground(bed, probe, history.now, wall)


@pytest.mark.parametrize("name", SEEN)
async def test_R1_nothing_is_served_and_the_probe_says_why(ground: Ground, name: str):
    fault = faults.make(name)
    assert fault.available(ground) is None
    began = ground.now()
    await fault.inject(ground)
    try:
        seen = await fault.confirm_fired(ground)
        assert SEEN[name] in seen["cause"], seen
        assert seen["at"] >= began
    finally:
        await fault.heal(ground, fault.heal_deadline_s)
    assert set((await fault.confirm_healed(ground, fault.heal_deadline_s))["lanes"]) == set(LANES)
    await fault.heal(ground, 10)  # safe to call twice


async def test_latency_delays_every_create_and_refuses_none(ground: Ground):
    fault, began = faults.make("latency"), ground.now()
    await fault.inject(ground)
    try:
        seen = await fault.confirm_fired(ground)
        assert set(seen["took_s"]) == set(LANES)
        assert min(seen["took_s"].values()) >= 0.9 * DELAY_S
    finally:
        await fault.heal(ground, fault.heal_deadline_s)
    healed = await fault.confirm_healed(ground, fault.heal_deadline_s)
    assert max(healed["took_s"].values()) < DELAY_S
    assert all(seen.accepted for seen in ground.probe.seen if seen.started >= began), "it is no outage"


async def test_connections_are_cut_again_and_again_and_new_ones_work(ground: Ground):
    fault = faults.make("connections-cut")
    await fault.inject(ground)
    seen = await fault.confirm_fired(ground)
    assert seen["cut"]
    await ground.probe.wait_accepted(ground.now(), 10)
    cut = await one_that_is_open(ground, 10)
    evidence = await fault.heal(ground, fault.heal_deadline_s)
    assert cut == "cut", "it goes on while it is held"
    assert evidence["cuts"] >= 2
    await fault.confirm_healed(ground, fault.heal_deadline_s)
    assert await one_that_is_open(ground, 3) == "open", "and ends with the heal"


async def one_that_is_open(ground: Ground, for_s: float) -> str:
    """Whether a connection that is opened now is still there after so many seconds."""
    host, _, port = ground.bed.proxies.proxies["api"].listen.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(for_s):
            await reader.read(1)
        return "cut"
    except ConnectionResetError:
        return "cut"
    except TimeoutError:
        return "open"
    finally:
        writer.close()


@pytest.mark.parametrize("name", [*SEEN, "latency", "connections-cut"])
async def test_a_fault_whose_injection_is_sabotaged_is_not_confirmed(
    ground: Ground, name: str, monkeypatch: pytest.MonkeyPatch
):
    fault = faults.make(name)

    def nothing(*_: Any) -> None: ...

    with monkeypatch.context() as sabotage:
        quickly_not_seen(sabotage)
        for call in ("add", "disable"):
            sabotage.setattr(ground.bed.proxies, call, nothing)
        try:
            with pytest.raises(ChaosError, match=r"did not fire|not seen by a client"):
                await fired(fault, ground)
        finally:
            await fault.heal(ground, 10)


async def test_the_undo_of_a_toxic_can_be_replayed_by_another_process(ground: Ground):
    fault = faults.make("black-hole")
    await fault.inject(ground)
    await fault.confirm_fired(ground)
    (step,) = fault.undo(ground)
    assert "toxic black-hole is off" in await asyncio.to_thread(replay, step)
    fault.healing_since = ground.now()
    await fault.confirm_healed(ground, 30)
