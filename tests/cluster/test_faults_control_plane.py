"""Each fault on the real control plane: it fires, a client that is no dispatcher sees it, it heals, and so on again."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos import faults
from chaos.errors import ChaosError
from chaos.faults import Ground
from chaos.history import History
from chaos.probe import Probe
from chaos.testbed import Testbed
from chaos.testbed.kube import Kube
from chaos.undo import replay

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
LANES = ("buffered", "tick")


@dataclass
class Field:
    ground: Ground
    history: History


@pytest.fixture(scope="module")
async def field(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Field]:
    directory = tmp_path_factory.mktemp("faults")
    mono, wall = time.monotonic(), time.time()
    async with AsyncExitStack() as stack:
        history = stack.enter_context(History(directory / "history.jsonl", mono))
        bed = await stack.enter_async_context(Testbed.start(directory, lanes=LANES, in_process=True))
        probe = await stack.enter_async_context(
            Probe.watching(bed.kubeconfig("probe"), bed.namespaces, history, interval_s=0.5)
        )
        yield Field(Ground(bed, probe, history.now, wall), history)


async def probe_pods(ground: Ground, lane: str) -> list[str]:
    path = f"/api/v1/namespaces/{ground.bed.namespaces[lane]}/pods"
    async with Kube.open(ground.bed.kubeconfig("admin")) as kube:
        reply = await kube.request("GET", path, query={"labelSelector": "rideout.dev/probe"})
    return [pod["metadata"]["name"] for pod in reply.body["items"]]


async def test_the_probe_creates_real_pods_in_every_lane_and_leaves_none(field: Field):
    accepted = await field.ground.probe.wait_accepted(field.history.now(), 20)
    assert set(accepted) == set(LANES)
    events = [event for event in History.read(field.history.path) if event["op"] == "probe"]
    assert {event["connection"] for event in events if event["code"] == 201} == {"new", "reused"}
    audit = field.ground.bed.audit_log.read_text()
    assert "rideout-probe/1" in audit, "a dry run would not be in the audit log as committed"
    assert len(await probe_pods(field.ground, "tick")) <= 2, "only those under way"


async def test_control_plane_stop_fires_and_heals_in_order(field: Field):
    ground, fault = field.ground, faults.make("control-plane-stop")
    assert fault.available(ground) is None
    undo = fault.undo(ground)
    assert [step["process"] for step in undo] == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ]
    stopped = (await fault.inject(ground))["stopped"]
    assert list(stopped) == ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"]
    assert stopped["kube-apiserver"]["exit"] == 0, "it drained and stopped by itself"
    fired = await fault.confirm_fired(ground)
    assert fired["cause"]
    assert fired["at"] >= stopped["etcd"]["at"], "what a draining apiserver answers is no outage yet"
    assert "does not run" in str(fault.available(ground))

    started = (await fault.heal(ground, fault.heal_deadline_s))["started"]
    assert list(started) == [step["process"] for step in undo]
    healed = await fault.confirm_healed(ground, fault.heal_deadline_s)
    assert set(healed["lanes"]) == set(LANES)
    assert healed["at"] > fired["at"]
    assert await fault.heal(ground, 10), "safe to call twice"


async def test_apiserver_kill_fires_and_heals(field: Field):
    ground, fault = field.ground, faults.make("apiserver-kill")
    assert (await fault.inject(ground))["exit"] == -9
    assert (await fault.confirm_fired(ground))["cause"]
    await fault.heal(ground, fault.heal_deadline_s)
    assert set((await fault.confirm_healed(ground, fault.heal_deadline_s))["lanes"]) == set(LANES)


async def test_proxy_off_refuses_connections_and_its_undo_can_be_replayed(field: Field):
    ground, fault = field.ground, faults.make("proxy-off")
    await fault.inject(ground)
    await fault.confirm_fired(ground)
    refused = await ground.probe.wait_refused(field.history.now(), 10)
    assert "ConnectionRefusedError" in str(refused.cause)
    (step,) = fault.undo(ground)
    assert "is on again" in await asyncio.to_thread(replay, step)
    fault.healing_since = field.history.now()
    await fault.confirm_healed(ground, fault.heal_deadline_s)
    await fault.heal(ground, 10)


@pytest.mark.parametrize("variant", ["answer-lost", "answer-lost-silent", "answer-lost-late"])
async def test_answer_lost_is_committed_and_not_heard(field: Field, variant: str):
    """Creates on warm connections, with the dispatcher's User-Agent: committed, and no answer came."""
    ground, fault = field.ground, faults.make(variant)
    heard: list[object] = []
    async with AsyncExitStack() as stack:
        clients = {
            lane: await stack.enter_async_context(
                Kube.open(ground.bed.kubeconfig("dispatcher"), user_agent="rideout-dispatcher/0 (row=1; epoch=1)")
            )
            for lane in LANES
        }
        for lane, client in clients.items():
            await create(client, ground.bed.namespaces[lane], f"warm-{variant}")
        await fault.inject(ground)
        for lane, client in clients.items():
            try:
                heard.append(await create(client, ground.bed.namespaces[lane], f"lost-{variant}", deadline_s=2))
            except Exception as error:
                heard.append(error)
        fired = await fault.confirm_fired(ground)
        assert set(fired["commits"]) == set(ground.bed.namespaces.values())
        assert all(isinstance(one, Exception) for one in heard), heard
        await fault.heal(ground, fault.heal_deadline_s)
        await fault.confirm_healed(ground, fault.heal_deadline_s)
    assert await fault.heal(ground, 10), "safe to call twice"


async def test_answer_lost_without_a_create_did_not_fire(field: Field, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("chaos.faults.answer_lost.COMMIT_DEADLINE_S", 1.0)
    ground, fault = field.ground, faults.make("answer-lost")
    await fault.inject(ground)
    try:
        with pytest.raises(ChaosError, match="no create was committed"):
            await fault.confirm_fired(ground)
    finally:
        await fault.heal(ground, 10)
    await fault.confirm_healed(ground, 30)


async def test_a_probe_deletes_what_it_left_when_its_answers_were_lost(field: Field):
    """A create that was committed and never heard left a pod; the probe that made it has to find it all the same."""
    ground, bed = field.ground, field.ground.bed
    async with Probe.watching(bed.kubeconfig("probe"), {"tick": bed.namespaces["tick"]}, field.history, interval_s=0.1):
        for _ in range(10):  # whether the toxic meets a create, a delete or a pause is chance
            fault = faults.make("answer-lost")
            await fault.inject(ground)
            try:
                assert (await ground.probe.wait_refused(field.history.now(), 10)).code is None
            finally:
                await fault.heal(ground, 10)
            if left := await pods_that_stay(ground):
                break
        assert left, "no create was committed without its answer, so nothing was shown"
    assert not left & set(await probe_pods(ground, "tick"))


async def pods_that_stay(ground: Ground) -> set[str]:
    """Probes' pods that are still there after some rounds of probing: nobody is about to delete them."""
    seen = set(await probe_pods(ground, "tick"))
    for _ in range(3):
        await ground.probe.wait_accepted(ground.now(), 20)
    return seen & set(await probe_pods(ground, "tick"))


async def test_a_fault_that_is_not_there_is_not_confirmed(field: Field):
    """The probe is served all the while, so nothing may claim to have fired."""
    with pytest.raises(ChaosError, match="not seen by a client"):
        await field.ground.probe.wait_refused(field.history.now(), 2)


async def create(client: Kube, namespace: str, name: str, deadline_s: float = 5.0) -> int:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulingGates": [{"name": "rideout.dev/test"}],
            "containers": [{"name": "none", "image": "none"}],
        },
    }
    reply = await client.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod, deadline_s=deadline_s)
    assert reply.status == 201, reply.message
    return reply.status


def test_every_fault_has_a_name_of_its_own_and_a_deadline(tmp_path: Path):
    for name in faults.FAULTS:
        fault = faults.make(name)
        assert name.startswith(fault.name)
        assert fault.heal_deadline_s > 0
