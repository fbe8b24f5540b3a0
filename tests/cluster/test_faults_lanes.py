"""Faults of dispatchers, their database and their agents, on two lanes that really run: seen from outside, healed."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from chaos import faults, lanes, leaders
from chaos.errors import ChaosError
from chaos.faults import Fault, Ground, agent_kill, dispatcher_freeze_leader, dispatcher_kill_at_seam
from chaos.faults.dispatcher_kill_at_seam import SEAMS
from chaos.faults.replicas import leader_of, serves
from chaos.history import History
from chaos.lanes import Lane
from chaos.probe import Probe
from chaos.scenarios.base import BOTH_PATHS
from chaos.testbed import Testbed
from chaos.testbed.processes import ManagedProcess
from chaos.testbed.reaper import read_pid_file
from chaos.traffic.launcher import WORK
from chaos.undo import replay
from tests.cluster.helpers import fired, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]
LANES = tuple(spec.name for spec in BOTH_PATHS)
FAULTS = (
    "dispatcher-kill-leader",
    "dispatcher-freeze-leader",
    "dispatcher-rolling-restart",
    "postgres-restart",
    "postgres-cut",
    "partition",
)


@pytest.fixture(scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    """A testbed whose two lanes are dispatched in the quick profile."""
    directory = tmp_path_factory.mktemp("lanes")
    mono, wall = time.monotonic(), time.time()
    async with AsyncExitStack() as stack:
        history = stack.enter_context(History(directory / "history.jsonl", mono))
        bed = await stack.enter_async_context(
            Testbed.start(directory, lanes=LANES, in_process=True, started_mono=mono, webhook_timeout_s=3)
        )
        running = await stack.enter_async_context(lanes.running(BOTH_PATHS, bed, directory, "quick"))
        probe = await stack.enter_async_context(
            Probe.watching(bed.kubeconfig("probe"), bed.namespaces, history, interval_s=0.5)
        )
        yield Ground(bed, probe, history.now, wall, running)


async def hand_in(ground: Ground, name: str, work_s: float = 0.1, due_in_s: float = 0.0) -> None:
    """Three tasks for each lane."""
    due_at = datetime.fromtimestamp(time.time() + due_in_s, UTC).isoformat()
    for lane in ground.lanes.values():
        env = {"RIDEOUT_LANE": lane.name, "RIDEOUT_WORK_S": str(work_s), "RIDEOUT_LEDGER": str(ground.bed.ledger)}
        spec = {"image": "none", "command": ["python3", str(WORK)], "env": env}
        tasks = [{"key": f"{name}-{number}", "due_at": due_at, "spec": spec} for number in range(3)]

        async def taken(lane: Lane = lane, tasks: list[dict[str, Any]] = tasks) -> bool:
            async with aiohttp.ClientSession() as session:
                run = {"key": name, "name": name, "tasks": tasks}
                async with session.post(f"{lane.urls[-1]}/v1/runs", json=run) as answer:
                    return answer.status in (200, 201)

        await until(taken, f"lane {lane.name} to take {name}")


async def all_succeed(ground: Ground, name: str, deadline_s: float = 60) -> None:
    for lane in ground.lanes.values():

        async def ended(lane: Lane = lane) -> bool:
            rows = [row for row in await lane.rows() if row["key"].startswith(f"{name}-")]
            assert not [row for row in rows if row["state"] == "failed"], rows
            return bool(rows) and all(row["state"] == "success" for row in rows)

        await until(ended, f"every task of {name} in lane {lane.name} to succeed", deadline_s)


@pytest.mark.parametrize("name", FAULTS)
async def test_it_fires_heals_and_every_task_succeeds(ground: Ground, name: str):
    fault = faults.make(name)
    assert fault.available(ground) is None
    before = {lane: (await leader_of(ground, lane, 30)).term for lane in LANES}
    await hand_in(ground, name)
    began = ground.now()
    seen = await fired(fault, ground)
    try:
        assert began <= seen["at"] <= ground.now()
    finally:
        await fault.heal(ground, fault.heal_deadline_s)
    healed = await fault.confirm_healed(ground, fault.heal_deadline_s)
    assert set(healed["lanes"]) == set(LANES)
    await all_succeed(ground, name)
    after = {lane: (await leader_of(ground, lane, 30)).term for lane in LANES}
    if name.startswith("dispatcher"):
        assert all(after[lane] > before[lane] for lane in LANES), "each lane has seen another term"


@pytest.mark.parametrize("seam", SEAMS)
async def test_a_dispatcher_dies_at_each_seam_and_leaves_its_claim(ground: Ground, seam: str):
    fault, refusing = faults.make(f"dispatcher-kill-{seam}"), faults.make("proxy-off")
    await hand_in(ground, seam, due_in_s=4)
    async with AsyncExitStack() as healing:
        if seam == "in-re-offer":  # only an offer that does not succeed is offered again
            await refusing.inject(ground)
            healing.push_async_callback(refusing.heal, ground, 30)
        seen = await fired(fault, ground)
        assert all(seen["claims_left"].values())
    await fault.heal(ground, fault.heal_deadline_s)
    await fault.confirm_healed(ground, fault.heal_deadline_s)
    assert not any("RIDEOUT_SEAM" in p.env for lane in ground.lanes.values() for p in lane.processes)
    await all_succeed(ground, seam)


async def test_agents_are_killed_with_their_code_and_their_rows_run_again(ground: Ground):
    await hand_in(ground, "long", work_s=5)

    async def running() -> bool:
        states = [row["state"] for lane in ground.lanes.values() for row in await lane.rows() if "long" in row["key"]]
        return states.count("running") == 6

    await until(running, "all agents to run")
    seen = await fired(faults.make("agent-kill"), ground)
    assert seen["killed"] == dict.fromkeys(LANES, 3)
    await all_succeed(ground, "long", 120)


@pytest.mark.parametrize("name", [*FAULTS, "agent-kill", "dispatcher-kill-after-create"])
async def test_a_fault_whose_injection_is_sabotaged_is_not_confirmed(
    ground: Ground, name: str, monkeypatch: pytest.MonkeyPatch
):
    fault = faults.make(name)

    async def goes_on(*_: Any, **__: Any) -> int | None:
        return None

    monkeypatch.setattr(agent_kill, "FIRED_S", 1.0)
    monkeypatch.setattr(dispatcher_kill_at_seam, "REACHED_S", 3.0)
    monkeypatch.setattr(dispatcher_freeze_leader, "LEADER_S", 3.0)
    with monkeypatch.context() as sabotage:
        for call in ("add", "disable"):
            sabotage.setattr(ground.bed.proxies, call, lambda *_: None)
        for call in ("kill", "pause", "start"):
            sabotage.setattr(ManagedProcess, call, lambda _: None)
        sabotage.setattr(ManagedProcess, "signal", lambda *_: None)
        for call in ("terminate", "wait_exit"):
            sabotage.setattr(ManagedProcess, call, goes_on)
        with pytest.raises(ChaosError, match=r"did not fire|did not end"):
            await fired(fault, ground)
        await fault.heal(ground, 30)
    assert [await serves(url) for lane in ground.lanes.values() for url in lane.urls] == ["serves"] * 3


async def test_the_undo_of_a_dispatcher_starts_it_with_its_settings(ground: Ground):
    """Another process replays it, and knows nothing but what is on disk."""
    fault = faults.make("dispatcher-kill-leader")
    await fired(fault, ground)
    said = [await asyncio.to_thread(replay, step) for step in fault.undo(ground)]
    assert sum("was started again" in one for one in said) == len(LANES)
    for lane in ground.lanes.values():
        for url in lane.urls:
            await until(lambda url=url: is_served(url), f"{url} to serve")
    await asyncio.gather(*(stop_stranger(ground, lane) for lane in ground.lanes.values()))
    await fault.heal(ground, 60)
    await fault.confirm_healed(ground, 60)


async def is_served(url: str) -> bool:
    return await serves(url) == "serves"


async def stop_stranger(ground: Ground, lane: Lane) -> None:
    """End what the replay started: it is no child of the suite's supervisor."""
    for process in lane.processes:
        if not process.alive and (pid := read_pid_file(process.pid_file)) is not None:
            os.killpg(pid, signal.SIGKILL)
            await asyncio.to_thread(os.waitpid, pid, 0)


async def test_R19_terms_of_leaders_are_on_record_and_do_not_overlap(ground: Ground):
    for lane in LANES:
        terms = await asyncio.to_thread(leaders.terms, ground.bed.database_url(lane, driver="postgresql"))
        assert len(terms) >= 3, "leaders were killed, frozen and restarted above"
        for earlier, later in pairwise(terms):
            assert earlier.expires_at <= later.began_at


def test_there_is_nothing_to_break_without_lanes(ground: Ground):
    bare = Ground(ground.bed, ground.probe, ground.now, ground.started_wall)
    for name in (*FAULTS, *(f"dispatcher-kill-{seam}" for seam in SEAMS)):
        fault: Fault = faults.make(name)
        assert fault.available(bare) is not None
