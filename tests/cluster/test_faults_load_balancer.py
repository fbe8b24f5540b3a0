"""A real Caddy before the real apiserver: who comes through it, what it answers when its upstream is away."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from chaos import faults
from chaos.errors import ChaosError
from chaos.faults import Ground
from chaos.history import History
from chaos.probe import Probe
from chaos.testbed import Testbed, loadbalancer
from chaos.testbed.kube import Kube
from chaos.undo import replay

# slow: the first run builds Caddy, which takes minutes.
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]
LANES = ("buffered", "tick")
ANSWERS = {
    "load-balancer-502": "502 empty body",
    "load-balancer-504": "504 <html><head><title>504 Gateway Timeout",
    "load-balancer-502-page": "502 <html><head><title>502 Bad Gateway",
    "load-balancer-503-page": "503 <html><head><title>503 Service Unavailable",
    "load-balancer-504-page": "504 <html><head><title>504 Gateway Timeout",
}


@pytest.fixture(scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    directory = tmp_path_factory.mktemp("load-balancer")
    mono, wall = time.monotonic(), time.time()
    async with AsyncExitStack() as stack:
        history = stack.enter_context(History(directory / "history.jsonl", mono))
        bed = await stack.enter_async_context(Testbed.start(directory, lanes=LANES, in_process=True))
        before = Ground(bed, None, history.now, wall)  # type: ignore[arg-type]
        assert "no load balancer" in str(faults.make("load-balancer-502").available(before))
        await loadbalancer.put_before(bed, 3.0, print)
        probe = await stack.enter_async_context(
            Probe.watching(bed.kubeconfig("probe"), bed.namespaces, history, interval_s=0.5)
        )
        yield Ground(bed, probe, history.now, wall)


async def test_tokens_come_through_it_and_may_do_what_the_dispatcher_may(ground: Ground):
    bed = ground.bed
    assert await ground.probe.wait_accepted(ground.now(), 20)
    async with Kube.open(bed.kubeconfig("dispatcher")) as kube:
        allowed = await kube.request("GET", f"/api/v1/namespaces/{bed.namespaces['tick']}/pods")
        forbidden = await kube.request("GET", "/api/v1/namespaces/default/pods")
    assert allowed.status == 200
    assert forbidden.status == 403
    assert "system:serviceaccount:rideout:rideout-dispatcher" in forbidden.message
    assert bed.load_balancer is not None
    assert bed.load_balancer.url in bed.kubeconfig("dispatcher").read_text()
    for identity, direct in (("admin", False), ("node", False), ("dispatcher", True)):
        assert bed.load_balancer.url not in bed.kubeconfig(identity, direct=direct).read_text()


async def test_a_client_certificate_ends_at_it(ground: Ground):
    bed = ground.bed
    assert bed.load_balancer is not None
    with_certificate = bed.control_plane.kubeconfig("dispatcher", bed.load_balancer.url, "at-the-load-balancer")
    async with Kube.open(with_certificate) as kube:
        reply = await kube.request("GET", f"/api/v1/namespaces/{bed.namespaces['tick']}/pods")
    assert reply.status in (401, 403)
    assert "system:anonymous" in reply.message or reply.status == 401


@pytest.mark.parametrize("name", ANSWERS)
async def test_R1_it_answers_without_a_Status_and_heals(ground: Ground, name: str):
    fault = faults.make(name)
    assert fault.available(ground) is None
    await fault.inject(ground)
    try:
        fired = await fault.confirm_fired(ground)
        assert fired["cause"].startswith(ANSWERS[name]), fired
        assert set(fired["lanes"]) == set(LANES)
    finally:
        await fault.heal(ground, fault.heal_deadline_s)
    assert set((await fault.confirm_healed(ground, fault.heal_deadline_s))["lanes"]) == set(LANES)
    await fault.heal(ground, fault.heal_deadline_s)  # safe to call twice


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_fault_whose_injection_is_sabotaged_is_not_confirmed(
    ground: Ground, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("chaos.faults.load_balancer.FIRED_S", 0.5)
    with pytest.raises(ChaosError, match=r"no create in (buffered|tick) was answered as it should be.*last: 201"):
        await faults.make(name).confirm_fired(ground)


@pytest.mark.parametrize("name", ["load-balancer-502", "load-balancer-504", "load-balancer-503-page"])
async def test_what_a_crashed_suite_left_can_be_put_right(ground: Ground, name: str):
    fault = faults.make(name)
    await fault.inject(ground)
    (step,) = fault.undo(ground)
    await asyncio.to_thread(replay, step)
    fault.healing_since = ground.now()
    await fault.confirm_healed(ground, 20)
