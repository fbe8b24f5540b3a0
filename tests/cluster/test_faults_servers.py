"""Each fault of the apiserver and of etcd: the probe sees it, it heals, and sabotaged it is not confirmed."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from chaos import faults
from chaos.errors import ChaosError
from chaos.faults import Ground
from chaos.history import History
from chaos.probe import Probe
from chaos.testbed import Testbed
from chaos.testbed.processes import ManagedProcess
from chaos.undo import replay
from tests.cluster.helpers import fired, quickly_not_seen

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]
LANES = ("buffered", "tick")
NAMES = (
    "apiserver-restart",
    "apiserver-long-stop",
    "apiserver-crash-loop",
    "etcd-pause",
    "etcd-kill",
    "apiserver-without-etcd",
)


@pytest.fixture(scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    directory = tmp_path_factory.mktemp("servers")
    mono, wall = time.monotonic(), time.time()
    async with AsyncExitStack() as stack:
        history = stack.enter_context(History(directory / "history.jsonl", mono))
        bed = await stack.enter_async_context(Testbed.start(directory, lanes=LANES, in_process=True))
        probe = await stack.enter_async_context(
            Probe.watching(bed.kubeconfig("probe"), bed.namespaces, history, interval_s=0.5)
        )
        yield Ground(bed, probe, history.now, wall)


@pytest.mark.parametrize("name", NAMES)
async def test_a_fault_of_the_servers_fires_and_heals(ground: Ground, name: str):
    fault = faults.make(name)
    assert fault.available(ground) is None
    starts = ground.bed.apiserver.starts, ground.bed.etcd.starts
    began = ground.now()
    await fault.inject(ground)
    try:
        seen = await fault.confirm_fired(ground)
        assert seen["cause"]
        assert seen["at"] >= began
    finally:
        await fault.heal(ground, fault.heal_deadline_s)
    healed = await fault.confirm_healed(ground, fault.heal_deadline_s)
    assert set(healed["lanes"]) == set(LANES)
    assert healed["at"] > seen["at"]
    grown = ground.bed.apiserver.starts - starts[0], ground.bed.etcd.starts - starts[1]
    assert {
        "apiserver-restart": grown == (1, 0),
        "apiserver-long-stop": grown == (1, 0),
        "apiserver-crash-loop": grown[0] >= 2 and len(seen.get("crashes", [])) >= 2,
        "etcd-pause": grown == (0, 0),
        "etcd-kill": grown[1] == 1,
        "apiserver-without-etcd": grown[0] >= 1 and grown[1] == 1,
    }[name], grown


@pytest.mark.parametrize("name", NAMES)
async def test_a_fault_whose_injection_is_sabotaged_is_not_confirmed(
    ground: Ground, name: str, monkeypatch: pytest.MonkeyPatch
):
    await ground.probe.wait_accepted(ground.now(), 60)
    fault = faults.make(name)

    async def goes_on(*_: Any, **__: Any) -> None: ...

    with monkeypatch.context() as sabotage:
        quickly_not_seen(sabotage)
        for process in (ground.bed.apiserver, ground.bed.etcd):
            for call in ("kill", "pause"):
                sabotage.setattr(process, call, lambda: None)
            for call in ("terminate", "wait_exit"):
                sabotage.setattr(process, call, goes_on)
        with pytest.raises(ChaosError, match=r"did not fire|not seen by a client|is running already"):
            await fired(fault, ground)
        await fault.heal(ground, 30)
    await fault.confirm_healed(ground, 60)


async def test_a_paused_process_can_be_let_go_on_by_another_process(ground: Ground):
    fault = faults.make("etcd-pause")
    await fault.inject(ground)
    await fault.confirm_fired(ground)
    (step,) = fault.undo(ground)
    assert f"etcd goes on (pid {ground.bed.etcd.pid})" == await asyncio.to_thread(replay, step)
    fault.healing_since = ground.now()
    await fault.confirm_healed(ground, 60)


async def test_an_etcd_that_is_gone_is_not_paused(ground: Ground):
    fault = faults.make("etcd-pause")
    await fault.inject(ground)
    etcd: ManagedProcess = ground.bed.etcd
    etcd.kill()
    await etcd.wait_exit(10)
    try:
        with pytest.raises(ChaosError, match="etcd has ended"):
            await fault.confirm_fired(ground)
        assert fault.available(ground) == "etcd does not run"
    finally:
        with suppress(ChaosError):
            etcd.start()
    await etcd.wait_ready(30)
    await ground.probe.wait_accepted(ground.now(), 150)
