"""The waits in the life of a run: warm-up, the steady-state gate, the recovery, the drain."""

from collections import Counter

from chaos.errors import ChaosError, Unknown
from chaos.history import History
from chaos.probe import CONNECTIONS
from chaos.scenarios import Stroke
from chaos.stage import Stage
from chaos.testbed.kube import TRANSPORT_ERRORS, Kube

FIRST_ANSWERS_S = 60.0
"""Locust takes some seconds to import, on two busy cores more."""
GATE_DEADLINE_S = 60.0
PODS_DEADLINE_S = 30.0


async def warm_up(stage: Stage) -> None:
    """Load without faults, for as long as the scenario says, counted from the first task that was handed in."""
    stage.cue("warm-up")
    if not await stage.wait_until(
        lambda: any(seen.states.total() for seen in stage.sampler.last.values()), FIRST_ANSWERS_S
    ):
        raise Unknown(f"no task was handed in within {FIRST_ANSWERS_S:g} s", log=stage.load.process.log)
    await stage.pass_time(stage.run.scenario.warm_up_s)


async def steady_state(stage: Stage) -> None:
    """The gate: what holds without a fault must hold now, or whatever comes proves nothing. Raises Unknown."""
    if not await stage.wait_until(lambda: not unsteady(stage), GATE_DEADLINE_S):
        raise Unknown(f"no steady state before the fault: {'; '.join(unsteady(stage))}")
    refused = [event for event in History.read(stage.run.history.path) if is_refused(event)]
    if refused:
        raise Unknown(f"no steady state before the fault: {len(refused)} submissions failed, first {refused[0]}")


def unsteady(stage: Stage) -> list[str]:
    """What is not as it should be without a fault, in words; empty in the steady state."""
    scenario, trouble = stage.run.scenario, []
    for lane in stage.lanes:
        if (seen := stage.sampler.last.get(lane)) is None:
            trouble.append(f"{lane} does not say how it is")
            continue
        if seen.placed < scenario.warm_up_placed:
            trouble.append(f"{lane} placed {seen.placed} of {scenario.warm_up_placed} tasks")
        if seen.oldest_due_age_s > scenario.steady_within_s:
            trouble.append(f"{lane} has a row that is {seen.oldest_due_age_s:.1f} s overdue")
        for connection in CONNECTIONS:
            if not stage.probe.accepting(lane, connection):
                cause = getattr(stage.probe.last.get((lane, connection)), "cause", "no answer yet")
                trouble.append(f"the probe's create for {lane} on a {connection} connection is not accepted: {cause}")
    return trouble


def is_refused(event: dict[str, object]) -> bool:
    return event.get("op") == "submit" and event.get("type") in ("fail", "info")


async def watch_recovery(stage: Stage, stroke: Stroke) -> None:
    """Until no due row has waited for long for `stable_s` in any lane but the control, at most `recovery_s`.

    Judges nothing. The control's rows wait for the backoff of their attempts: nobody promised a minute for them.
    """
    clock, within = stage.run.history.now, stage.run.scenario.steady_within_s
    watched = [name for name, lane in stage.lanes.items() if lane.spec.policy == "window"]
    stable_since: float | None = None

    def stable() -> bool:
        nonlocal stable_since
        if any(stage.sampler.last[name].oldest_due_age_s > within for name in watched):
            stable_since = None
        elif stable_since is None:
            stable_since = clock()
        return stable_since is not None and clock() - stable_since >= stroke.stable_s

    await stage.wait_until(stable, stroke.recovery_s)


async def wait_refused(stage: Stage, at_most_s: float) -> None:
    """Until as many tasks have failed as should be refused, in every lane but the control, at most so long. Judges
    nothing: it is the dispatchers' word, and a denial that was too short is found out by the records."""
    meant = Counter(
        event["lane"]
        for event in History.read(stage.run.history.path)
        if event.get("op") == "submit" and event["type"] == "ok" and event.get("expect") == "rejected"
    )
    watched = [name for name, lane in stage.lanes.items() if lane.spec.policy == "window"]
    last = stage.sampler.last
    await stage.wait_until(lambda: all(last[name].states["failed"] >= meant[name] for name in watched), at_most_s)


async def drain(stage: Stage) -> None:
    """End the load, then wait until every row has ended and no task pod runs. What has not is for the checkers."""
    stage.cue(None)
    stage.load_over = True
    reached = await stage.load.finish()
    stage.run.history.write("info", "suite", "load", reached=reached)
    deadline_s = stage.run.scenario.drain_deadline_s
    finished = await stage.wait_rows(lambda seen: seen.unfinished == 0, deadline_s)
    if not finished:
        left = {lane: seen.unfinished for lane, seen in stage.sampler.last.items() if seen.unfinished}
        stage.run.progress.note(f"not every row ended within {deadline_s:g} s: {left}")
    await wait_for_pods(stage)


async def wait_for_pods(stage: Stage) -> None:
    """Wait until every task pod has ended, so that refused ones have said so before the records are collected."""
    running = -1
    try:
        async with Kube.open(stage.bed.kubeconfig("admin")) as kube:
            end = stage.run.history.now() + PODS_DEADLINE_S
            while stage.run.history.now() < end:
                running = await count_running(kube, list(stage.bed.namespaces.values()))
                if running == 0:
                    return
                await stage.pass_time(0.5)
    except (*TRANSPORT_ERRORS, ChaosError) as error:
        stage.run.progress.note(f"the pods could not be listed: {error!r}")
    stage.run.progress.note(f"{running} task pods had not ended after {PODS_DEADLINE_S:g} s")


async def count_running(kube: Kube, namespaces: list[str]) -> int:
    """Task pods that have not ended, over all lanes."""
    count = 0
    for namespace in namespaces:
        path = f"/api/v1/namespaces/{namespace}/pods"
        reply = await kube.request("GET", path, query={"labelSelector": "app.kubernetes.io/managed-by=rideout"})
        phases = [pod.get("status", {}).get("phase") for pod in reply.body.get("items", [])]
        count += sum(phase not in ("Succeeded", "Failed") for phase in phases)
    return count
