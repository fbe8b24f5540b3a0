"""The story of a run: prepare, warm up, gate, break, confirm, hold, heal, confirm, recover, drain, check, report.

A step that fails its own test makes the run unknown. Whatever was broken is healed on every way out, and what has to
be healed is on disk before it is broken.
"""

import asyncio
import contextlib
import os
import signal
import traceback
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from chaos import conclude, faults, steps, verdict_table
from chaos.checkers import Result
from chaos.collect import collect
from chaos.errors import ChaosError, Unknown
from chaos.faults import Evidence, Fault
from chaos.history import History
from chaos.progress import Progress
from chaos.result import EXIT_CODES
from chaos.rundir import RunDir
from chaos.scenarios import Scenario, Stroke
from chaos.stage import Run, Stage, describe, log_path, setting_up
from chaos.undo import Undos

STOPPED = Unknown("the run was stopped before its end")


async def tell(run: Run) -> None:
    """The whole story up to the collected records. Raises ChaosError where a step fails its own test."""
    run.phase("prepare")
    async with setting_up(run) as stage:
        async with collected(stage):
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
    if (why := fault.available(stage.ground)) is not None:
        raise Unknown(f"{fault.name} cannot be injected here: {why}")
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


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: its directory, its exit code (0 valid, 1 invalid, 2 unknown), what went wrong, if anything."""

    directory: Path
    exit_code: int
    trouble: ChaosError | None = None


def ride(scenario: Scenario, seed: int, runs: Path, console: Console) -> Ended:
    """Tell the story, then check and report it. Never raises for what happens within a run."""
    directory = RunDir.create(runs, scenario.name, seed)
    history = History(directory.path / "history.jsonl", directory.started_mono)
    title = f"{scenario.name}, {scenario.profile} profile, seed {seed}"
    progress = Progress(console, title, history.now)
    run = Run(scenario, seed, directory, history, progress, Undos.of_this_process(directory.path, os.getpid()))
    with signals_interrupt(), progress.showing():
        progress.note(f"records: {directory.path}")
        describe(run)
        trouble = live_through(run)
        result, trouble = conclude_run(run, trouble)
    history.close()
    if trouble is STOPPED:  # a table of what a stopped run cannot show would only hide where its records are
        console.print(f"unknown; kept: {directory.path}", markup=False, highlight=False, soft_wrap=True)
    else:
        verdict_table.show(result, directory.path, console)
    return Ended(directory.path, EXIT_CODES[result.verdict], trouble)


def conclude_run(run: Run, trouble: ChaosError | None) -> tuple[Result, ChaosError | None]:
    """Check and report. What went wrong is written into the history first, so that a later check knows it too."""
    if trouble is not None:
        run.history.write("info", "suite", "trouble", what=str(trouble))
    try:
        run.phase("check")
        result = conclude.check(run.directory.path)
        run.phase("report")
        if trouble is not STOPPED:  # who stops a run does not want to wait for pictures
            conclude.report(run.directory.path)
        return result, trouble
    except KeyboardInterrupt:
        return conclude_run(run, STOPPED)
    except Exception as error:  # the report failed: the verdict stands, and is in result.json
        keep_traceback(error, run.directory.path)
        log = log_path(run.directory.path)
        return conclude.check(run.directory.path), ChaosError(f"no report could be written: {error!r}", log=log)


def live_through(run: Run) -> ChaosError | None:
    """Tell the story to its end; returns what made it unknown, if anything did."""
    try:
        asyncio.run(tell(run))
        return None
    except (KeyboardInterrupt, asyncio.CancelledError):
        return STOPPED
    except ChaosError as error:
        keep_traceback(error, run.directory.path)
        return error
    except Exception as error:
        keep_traceback(error, run.directory.path)
        return Unknown(f"the suite itself failed: {error!r}", log=log_path(run.directory.path))


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: asyncio cancels its main task, and everything is put right.

    SIGINT is set too: a shell without job control starts what it puts into the background with SIGINT ignored.
    """

    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def keep_traceback(error: BaseException, directory: Path) -> None:
    """The traceback goes where a developer finds it, not to the person at the terminal."""
    with log_path(directory).open("a", encoding="utf-8") as log:
        traceback.print_exception(error, file=log)
