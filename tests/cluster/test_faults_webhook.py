"""Each fault of the fail-closed webhook on the real apiserver: what a create is answered, and that it heals."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from chaos import faults
from chaos.audit import answer_of
from chaos.errors import ChaosError
from chaos.faults import Ground
from chaos.faults.asking import Asking, answers
from chaos.faults.webhook_denies import LABELS, MESSAGE
from chaos.history import History
from chaos.probe import Probe
from chaos.testbed import Testbed
from chaos.testbed.kube import Kube
from chaos.undo import replay
from dispatcher.errors import Answer, classify_answer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
LANES = ("buffered", "tick")
CALL_FAILED = '500 InternalError: Internal error occurred: failed calling webhook "gate.rideout.dev": '
UNREACHABLE = {
    "webhook-down": "connection refused",
    "webhook-slow": "deadline exceeded",
    "webhook-tls": "x509: certificate signed by unknown authority",
    "webhook-garbage": "",
    "webhook-garbage-500": "",
    "webhook-garbage-503": "",
}
DENIES = {"webhook-denies": 403, "webhook-denies-429": 429, "webhook-denies-500": 500, "webhook-denies-503": 503}


@pytest.fixture(scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    directory = tmp_path_factory.mktemp("webhook")
    mono, wall = time.monotonic(), time.time()
    async with AsyncExitStack() as stack:
        history = stack.enter_context(History(directory / "history.jsonl", mono))
        bed = await stack.enter_async_context(
            Testbed.start(directory, lanes=LANES, in_process=True, webhook_timeout_s=2)
        )
        probe = await stack.enter_async_context(
            Probe.watching(bed.kubeconfig("probe"), bed.namespaces, history, interval_s=0.5)
        )
        yield Ground(bed, probe, history.now, wall)


async def read_by_both(ground: Ground, labels: dict[str, str], disposition: str, cause: str) -> None:
    """The real answer means the same to the dispatcher and to the judge, which share no code."""
    for _, reply in (await answers(ground, lambda reply: reply.status != 201, 20, Asking(labels))).values():
        told = (str(reply.body.get(field) or "") for field in ("reason", "message"))
        assert answer_of(reply.status, *told) == disposition
        verdict = classify_answer(Answer(reply.status, {}, json.dumps(reply.body).encode()))
        assert (verdict.disposition, verdict.cause) == (disposition.lower(), cause)


@pytest.mark.parametrize("name", UNREACHABLE)
async def test_R1_a_webhook_that_cannot_be_called_is_an_internal_error(ground: Ground, name: str):
    fault = faults.make(name)
    assert fault.available(ground) is None
    began = ground.now()
    await fault.inject(ground)
    try:
        fired = await fault.confirm_fired(ground)
        assert fired["cause"].startswith(CALL_FAILED), fired
        assert UNREACHABLE[name] in fired["cause"]
        assert set(fired["lanes"]) == set(LANES)
        assert began <= fired["at"] <= ground.now()
        await read_by_both(ground, {}, "Unavailable", "webhook unreachable")
    finally:
        await fault.heal(ground, fault.heal_deadline_s)
    healed = await fault.confirm_healed(ground, fault.heal_deadline_s)
    assert set(healed["lanes"]) == set(LANES)
    await fault.heal(ground, fault.heal_deadline_s)  # safe to call twice


@pytest.mark.parametrize("name", DENIES)
async def test_R2_a_webhook_denies_labelled_pods_with_any_code_and_no_others(ground: Ground, name: str):
    fault = faults.make(name)
    await fault.inject(ground)
    try:
        fired = await fault.confirm_fired(ground)
        assert fired["cause"].startswith(f"{DENIES[name]} "), fired
        assert f'admission webhook "gate.rideout.dev" denied the request: {MESSAGE}' in fired["cause"]
        assert set(fired["spared"]) == set(LANES)
        await read_by_both(ground, LABELS, "Rejected", f"{DENIES[name]} denied by webhook")
    finally:
        await fault.heal(ground, fault.heal_deadline_s)
    healed = await fault.confirm_healed(ground, fault.heal_deadline_s)
    assert set(healed["labelled"]) == set(healed["lanes"]) == set(LANES)


@pytest.mark.parametrize("name", [*UNREACHABLE, *DENIES])
async def test_a_fault_whose_injection_is_sabotaged_is_not_confirmed(
    ground: Ground, name: str, monkeypatch: pytest.MonkeyPatch
):
    """The webhook goes on admitting everything: nothing may claim to have fired."""
    for module in ("webhook", "webhook_down", "webhook_denies"):
        monkeypatch.setattr(f"chaos.faults.{module}.FIRED_S", 0.5)
    fault = faults.make(name)

    async def nothing(*_: object) -> dict[str, object]:
        return {}

    monkeypatch.setattr(ground.bed, "webhook_mode", nothing)
    monkeypatch.setattr(ground.bed.proxies, "disable", lambda _: None)
    await fault.inject(ground)
    with pytest.raises(ChaosError, match=r"no create in (buffered|tick) was answered as it should be.*last: 201"):
        await fault.confirm_fired(ground)


async def test_a_webhook_that_stays_broken_is_not_confirmed_to_be_healed(ground: Ground):
    fault = faults.make("webhook-denies")
    await fault.inject(ground)
    fault.healing_since = ground.now()
    with pytest.raises(ChaosError, match=r"no create in .* within 0\.5 s; last: 403"):
        await fault.confirm_healed(ground, 0.5)
    (step,) = fault.undo(ground)
    assert "admits every pod again" in await asyncio.to_thread(replay, step)
    await fault.confirm_healed(ground, 20)


async def test_the_creates_of_faults_leave_no_pods_behind(ground: Ground):
    async with Kube.open(ground.bed.kubeconfig("admin")) as kube:
        selector = ",".join(f"{name}={value}" for name, value in LABELS.items())
        reply = await kube.request("GET", "/api/v1/pods", query={"labelSelector": selector})
    assert reply.body["items"] == []


async def test_a_certificate_that_is_none_changes_nothing(ground: Ground, tmp_path: Path):
    with pytest.raises(ChaosError, match="the webhook refused the mode"):
        await ground.bed.webhook_mode({"mode": "certificate", "certificate": str(tmp_path), "key": str(tmp_path)})
    assert (await ground.bed.webhook_mode())["mode"] == "admit"
