"""Synthetic runs with their verdict and their report, for the report's tests."""

from collections.abc import Callable
from pathlib import Path

from chaos.checkers import judge
from chaos.records import Records
from chaos.report import write_report
from chaos.result import write_result
from tests.checkers.synthetic import SyntheticRun, a_good_run

Spoil = Callable[[SyntheticRun], object]


def judged(directory: Path, *spoils: Spoil, profile: str = "full") -> Path:
    """Write a run with its result.json into `directory`; returns the directory."""
    run = a_good_run(profile=profile)
    for spoil in spoils:
        spoil(run)
    return judge_into(run, directory)


def judge_into(run: SyntheticRun, directory: Path) -> Path:
    run.write(directory)
    write_result(judge(Records.load(directory)), directory)
    return directory


def page_of(directory: Path) -> str:
    return write_report(directory).read_text(encoding="utf-8")
