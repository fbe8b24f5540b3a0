"""A run as a process: its directory, its signals, and what comes after the story: check, report, exit code."""

import asyncio
import contextlib
import os
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from chaos import conclude, verdict_table
from chaos.checkers import Result
from chaos.errors import ChaosError, Unknown
from chaos.history import History
from chaos.progress import Progress
from chaos.result import EXIT_CODES
from chaos.run import tell
from chaos.rundir import RunDir
from chaos.scenarios import Scenario
from chaos.stage import Run, describe, log_path
from chaos.standing import Standing
from chaos.undo import Undos

STOPPED = Unknown("the run was stopped before its end")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: its directory, its exit code (0 valid, 1 invalid, 2 unknown), what went wrong, if anything."""

    directory: Path
    exit_code: int
    result: Result
    trouble: ChaosError | None = None


def ride(scenario: Scenario, seed: int, runs: Path, console: Console, standing: Standing | None = None) -> Ended:
    """Tell the story, then check and report it. Never raises for what happens within a run.

    Several runs may share a testbed (`standing`); without one the run makes its own.
    """
    directory = RunDir.create(runs, scenario.name, seed)
    history = History(directory.path / "history.jsonl", directory.started_mono)
    title = f"{scenario.name}, {scenario.profile} profile, seed {seed}"
    progress = Progress(console, title, history.now)
    run = Run(scenario, seed, directory, history, progress, Undos.of_this_process(directory.path, os.getpid()))
    with signals_interrupt(), progress.showing():
        progress.note(f"records: {directory.path}")
        describe(run)
        broken_off = live_through(run, standing)
        result, trouble = conclude_run(run, broken_off)
    history.close()
    if broken_off:  # a table of all that such a run cannot show would hide the one line that says why
        console.print(f"unknown; kept: {directory.path}", markup=False, highlight=False, soft_wrap=True)
    else:
        verdict_table.show(result, directory.path, console)
    return Ended(directory.path, EXIT_CODES[result.verdict], result, trouble)


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


def live_through(run: Run, standing: Standing | None = None) -> ChaosError | None:
    """Tell the story to its end; returns what made it unknown, if anything did."""
    try:
        if standing is None:
            asyncio.run(tell(run))
        else:
            standing.tell(run)
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
