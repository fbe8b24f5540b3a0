"""Several runs in a row on one testbed: every scenario (`chaos run all`), or one again and again (`--repeat`).

Each run keeps its own directory, records, verdict and report, as if it were alone. The series adds a table of all of
them, `series.json` beside its testbed's logs, and the worst exit code.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from chaos import series_table
from chaos.checkers import Result, Verdict
from chaos.checkers.base import worst
from chaos.errors import ChaosError
from chaos.result import EXIT_CODES
from chaos.ride import STOPPED, Ended, ride, signals_interrupt
from chaos.scenarios import Profile, Scenario
from chaos.standing import Standing


@dataclass(frozen=True, slots=True)
class Turn:
    """One run that is to be made."""

    scenario: Scenario
    seed: int


@dataclass(frozen=True, slots=True)
class Line:
    """One run that was made. `took_s` counts from the end of the one before, the reset of the testbed included."""

    result: Result
    directory: Path
    took_s: float
    trouble: str = ""


@dataclass(slots=True)
class Series:
    """What came of a series. `left_out` says why a scenario was not run."""

    name: str
    profile: Profile
    seed: int
    directory: Path
    lines: list[Line] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    took_s: float = 0.0
    trouble: ChaosError | None = None
    """The last run's, for the person at the terminal."""

    @property
    def verdict(self) -> Verdict:
        """The worst of all; a series without a run has shown nothing."""
        return worst([line.result.verdict for line in self.lines]) if self.lines else Verdict.UNKNOWN

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


def ride_all(
    name: str,
    turns: Sequence[Turn],
    runs: Path,
    console: Console,
    *,
    left_out: dict[str, str] | None = None,
    stop_at_first_failure: bool = False,
) -> Series:
    """Make the runs in order; stop early where a person stops one, or at the first that is not valid, if so told."""
    first = turns[0]
    directory = _directory(runs, name, first.seed)
    series = Series(name, first.scenario.profile, first.seed, directory, left_out=dict(left_out or {}))
    begun = time.monotonic()
    with signals_interrupt(), Standing(directory) as standing:
        for number, turn in enumerate(turns, start=1):
            console.print(f"\n[{number} of {len(turns)}]", markup=False, highlight=False)
            since = time.monotonic()
            ended = ride(turn.scenario, turn.seed, runs, console, standing)
            series.lines.append(_line(ended, time.monotonic() - since))
            series.trouble = ended.trouble
            series.took_s = time.monotonic() - begun
            write(series)
            if ended.trouble is STOPPED or (stop_at_first_failure and ended.exit_code):
                break
            if ended.result.verdict is Verdict.UNKNOWN:
                standing.end()
    series_table.show(series, console)
    return series


def _line(ended: Ended, took_s: float) -> Line:
    return Line(ended.result, ended.directory, took_s, str(ended.trouble or ""))


def _directory(runs: Path, name: str, seed: int) -> Path:
    """runs/<name>/<UTC time>-<seed>/ for what the runs have in common: the testbed's logs, the series' own table."""
    directory = (runs / name / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{seed}").resolve()
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        raise ChaosError(f"cannot write to {runs}: {error.strerror}; give another place with --runs-dir") from error
    return directory


def as_json(series: Series) -> dict[str, Any]:
    """series.json. The runs' own result.json says the rest."""
    return {
        "schema": 1,
        "series": series.name,
        "profile": series.profile,
        "seed": series.seed,
        "verdict": series.verdict.value,
        "duration_s": round(series.took_s, 1),
        "left_out": series.left_out,
        "runs": [
            {
                "scenario": line.result.scenario,
                "seed": line.result.seed,
                "verdict": line.result.verdict.value,
                "took_s": round(line.took_s, 1),
                "directory": str(line.directory),
                "trouble": line.trouble,
                "lanes": {
                    name: {"verdict": lane.verdict.value, "decides": lane.decides, **series_table.figures(lane)}
                    for name, lane in line.result.lanes.items()
                },
            }
            for line in series.lines
        ],
    }


def write(series: Series) -> None:
    """After each run, so that a series that is cut short has kept what it had."""
    path = series.directory / "series.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(orjson.dumps(as_json(series), option=orjson.OPT_INDENT_2) + b"\n")
    temporary.replace(path)
