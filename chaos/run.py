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


async def tell(run: Run) -> None:
    """The whole story up to the collected records. Raises ChaosError where a step fails its own test."""
    run.phase("prepare")
    async with setting_up(run) as stage:
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
    """One fault: write the undo down, inject, confirm it fired, hold, heal, confirm it healed, watch the recovery."""
    run, fault = stage.run, faults.make(stroke.fault)
    if stroke.load_before:
        run.phase(stroke.phase or "inject")
        stage.cue(stroke.load_before)
        await stage.pass_time(stroke.before_s)
    run.undos.add(fault.name, fault.undo(stage.ground))
    try:
        run.phase(stroke.phase or "inject")
        await step(run, fault, "inject", fault.inject(stage.ground))
        await step(run, fault, "confirm_fired", fault.confirm_fired(stage.ground))
        if stroke.load_fired:
            stage.cue(stroke.load_fired)
        run.phase(stroke.phase or "hold", stroke.hold_s)
        await stage.pass_time(stroke.hold_s)
    finally:
        run.phase(stroke.phase or "heal")
        with stage.probe.closely():
            await step(run, fault, "heal", fault.heal(stage.ground, fault.heal_deadline_s))
        run.undos.close(fault.name)
    await step(run, fault, "confirm_healed", fault.confirm_healed(stage.ground, fault.heal_deadline_s))
    if stroke.load_healed:
        stage.cue(stroke.load_healed)
    if stroke.recovery_s:
        run.phase(stroke.phase or "recovery", stroke.recovery_s)
        await steps.watch_recovery(stage, stroke)


def require_available(stage: Stage) -> None:
    """Raises Unknown for a fault that cannot be injected here, before any is."""
    for stroke in stage.run.scenario.strokes:
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
