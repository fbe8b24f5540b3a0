"""The story of a run: prepare, warm up, gate, break, confirm, hold, heal, confirm, recover, drain, collect.

A step that fails its own test makes the run unknown. Whatever was broken is healed on every way out, and what has to
be healed is on disk before it is broken. `ride` tells the story as a process, then checks and reports it.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable

from chaos import faults, steps
from chaos.collect import collect
from chaos.errors import Unknown
from chaos.faults import Evidence, Fault
from chaos.scenarios import Stroke
from chaos.stage import Run, Stage, setting_up
from chaos.testbed import Testbed


async def tell(run: Run, bed: Testbed | None = None) -> None:
    """The whole story up to the collected records, on a testbed of its own unless it is given one.

    Raises ChaosError where a step fails its own test.
    """
    run.phase("prepare")
    async with setting_up(run, bed) as stage:
        async with collected(stage):
            require_available(stage)
            run.phase("warm-up", run.scenario.warm_up_s)
            await steps.warm_up(stage)
            run.phase("steady-state")
            await steps.steady_state(stage)
            for stroke in run.scenario.strokes:
                await strike(stage, stroke)
            run.phase("drain", run.scenario.drain_deadline_s)
            await steps.drain(stage)


async def strike(stage: Stage, stroke: Stroke) -> None:
    """One fault: write the undo down, inject, confirm it fired, hold, heal, confirm it healed, watch the recovery.

    Faults that take over from each other without a gap (`Stroke.then`) are one outage: each is injected before the one
    before it is healed, and only when the last is healed can a create show that they are over. Those that are struck
    `meanwhile` have a life of their own within this one's.
    """
    run = stage.run
    if stroke.load_before:
        run.phase(stroke.phase or "inject")
        stage.cue(stroke.load_before)
        await stage.pass_time(stroke.before_s)
    struck: list[Fault] = []
    async with contextlib.AsyncExitStack() as healing:
        for one in stroke.chain():
            fault = faults.make(one.fault)
            run.undos.add(fault.name, fault.undo(stage.ground))
            before = healing.pop_all()
            healing.push_async_callback(heal, stage, fault, stroke.phase or "heal")
            async with before:
                run.phase(stroke.phase or "inject")
                await step(run, fault, "inject", fault.inject(stage.ground))
            await step(run, fault, "confirm_fired", fault.confirm_fired(stage.ground))
            struck.append(fault)
            if one.load_fired:
                stage.cue(one.load_fired)
            run.phase(stroke.phase or "hold", one.hold_s)
            await stage.pass_time(one.hold_s)
            if one.refused_within_s:
                await steps.wait_refused(stage, one.refused_within_s)
            for inner in one.meanwhile:
                await strike(stage, inner)
    for fault in reversed(struck):
        await step(run, fault, "confirm_healed", fault.confirm_healed(stage.ground, fault.heal_deadline_s))
    if stroke.load_healed:
        stage.cue(stroke.load_healed)
    if stroke.recovery_s:
        run.phase(stroke.phase or "recovery", stroke.recovery_s)
        await steps.watch_recovery(stage, stroke)


async def heal(stage: Stage, fault: Fault, phase: str) -> None:
    """Heal on whatever way out; the undo on disk is closed once it is done."""
    stage.run.phase(phase)
    with stage.probe.closely():
        await step(stage.run, fault, "heal", fault.heal(stage.ground, fault.heal_deadline_s))
    stage.run.undos.close(fault.name)


def require_available(stage: Stage) -> None:
    """Raises Unknown for a fault that cannot be injected here, before any is."""
    for stroke in (one for first in stage.run.scenario.strokes for one in first.all()):
        fault = faults.make(stroke.fault)
        if (why := fault.available(stage.ground)) is not None:
            raise Unknown(f"{fault.name} cannot be injected here: {why}")


async def step(run: Run, fault: Fault, name: str, doing: Awaitable[Evidence]) -> None:
    """One step of a fault, in the history: invoke, then ok with its evidence, or fail."""
    run.history.write("invoke", "suite", "fault", fault=fault.name, step=name)
    try:
        evidence = await doing
    except BaseException as error:
        told = str(error) or type(error).__name__
        run.history.write("fail", "suite", "fault", fault=fault.name, step=name, evidence={"error": told})
        raise
    run.history.write("ok", "suite", "fault", fault=fault.name, step=name, evidence=evidence)
    run.progress.note(f"{fault.name}: {name.replace('_', ' ')}{faults.told(evidence)}")


@contextlib.asynccontextmanager
async def collected(stage: Stage) -> AsyncIterator[None]:
    """Collect the records on every way out; what went wrong before is what is told."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            stage.run.phase("collect")
            await stage.load.process.terminate(5.0)  # what is handed in after the rows were read would look lost
            await collect(stage)
        raise
    stage.run.phase("collect")
    await collect(stage)
