"""Throttling and a used-up quota on the real apiserver: what a create is answered, and that there is room again."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from chaos import faults
from chaos.audit import answer_of
from chaos.errors import ChaosError
from chaos.faults import Ground
from chaos.faults.asking import Asking, Wanted, answers
from chaos.history import History
from chaos.probe import Probe
from chaos.testbed import Testbed
from chaos.undo import replay
from dispatcher.errors import Answer, classify_answer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
LANES = ("buffered", "tick")
ANSWERS = {"throttle": "429 Too many requests", "quota": '403 Forbidden: pods "asked-'}
PUT_OFF: dict[str, Wanted] = {"throttle": lambda reply: reply.status == 429, "quota": lambda reply: reply.status == 403}
HERD = {"throttle": Asking(identity="dispatcher", at_once=12), "quota": Asking(at_once=6)}


@pytest.fixture(scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    directory = tmp_path_factory.mktemp("pressure")
    mono, wall = time.monotonic(), time.time()
    async with AsyncExitStack() as stack:
        history = stack.enter_context(History(directory / "history.jsonl", mono))
        bed = await stack.enter_async_context(Testbed.start(directory, lanes=LANES, in_process=True))
        probe = await stack.enter_async_context(
            Probe.watching(bed.kubeconfig("probe"), bed.namespaces, history, interval_s=0.5)
        )
        yield Ground(bed, probe, history.now, wall)


@pytest.mark.parametrize("name", ANSWERS)
async def test_R1_R2_it_puts_creates_off_and_heals(ground: Ground, name: str):
    fault = faults.make(name)
    assert fault.available(ground) is None
    await fault.inject(ground)
    try:
        fired = await fault.confirm_fired(ground)
        assert fired["cause"].startswith(ANSWERS[name]), fired
        assert set(fired["lanes"]) == set(LANES)
        for _, reply in (await answers(ground, PUT_OFF[name], 20, HERD[name])).values():
            told = (str(reply.body.get(field) or "") for field in ("reason", "message"))
            assert answer_of(reply.status, *told) == "Backpressure"
            verdict = classify_answer(Answer(reply.status, {}, json.dumps(reply.body).encode()))
            assert verdict.disposition == "backpressure"
        with pytest.raises(ChaosError, match="was answered as it should be"):
            await fault.confirm_healed(ground, 0.5)
    finally:
        healed = await fault.heal(ground, fault.heal_deadline_s)
    assert len(healed["removed"]) == 2
    assert set((await fault.confirm_healed(ground, fault.heal_deadline_s))["lanes"]) == set(LANES)
    assert (await fault.heal(ground, fault.heal_deadline_s))["removed"] == [], "safe to call twice"


async def test_a_tight_flow_still_serves_one_at_a_time_and_others_not_at_all(ground: Ground):
    fault = faults.make("throttle")
    await fault.inject(ground)
    try:
        await fault.confirm_fired(ground)
        alone = Asking(identity="dispatcher")
        for _ in range(3):
            await answers(ground, lambda reply: reply.status == 201, 5, alone)
        # The probe is in another flow: it says all the while that the API is there.
        together = Asking(at_once=12, every=True)
        await answers(ground, lambda reply: reply.status == 201, 5, together)
    finally:
        await fault.heal(ground, fault.heal_deadline_s)


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_fault_whose_injection_is_sabotaged_is_not_confirmed(
    ground: Ground, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(f"chaos.faults.{name}.FIRED_S", 0.5)
    with pytest.raises(ChaosError, match=r"no create in (buffered|tick) was answered as it should be.*last: 201"):
        await faults.make(name).confirm_fired(ground)


@pytest.mark.parametrize("name", ANSWERS)
async def test_what_a_crashed_suite_left_can_be_put_right(ground: Ground, name: str):
    fault = faults.make(name)
    await fault.inject(ground)
    await fault.confirm_fired(ground)
    for step in fault.undo(ground):
        assert "is deleted" in await asyncio.to_thread(replay, step)
    fault.healing_since = ground.now()
    await fault.confirm_healed(ground, 20)
    assert "it was gone" in await asyncio.to_thread(replay, fault.undo(ground)[0])


async def test_without_its_keys_an_undo_says_that_the_testbed_is_gone(ground: Ground):
    (step, _) = faults.make("throttle").undo(ground)
    gone = {**step, "tls": {**step["tls"], "key": "/nonexistent"}}
    assert "went with their testbed" in await asyncio.to_thread(replay, gone)
