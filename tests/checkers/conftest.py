"""Asks one checker about one lane of a synthetic run."""

from collections.abc import Callable

import pytest

from chaos.checkers import CHECKERS, CheckResult
from tests.checkers.synthetic import FEW, SyntheticRun, a_good_run

Ask = Callable[..., CheckResult]
BY_NAME = {checker.name: checker for checker in CHECKERS}


@pytest.fixture
def run() -> SyntheticRun:
    """A small good run of one lane, "tick", in the quick profile."""
    return a_good_run(lanes=("tick",), profile="quick", load=FEW)


@pytest.fixture
def ask() -> Ask:
    def ask_about(run: SyntheticRun, checker: str, lane: str = "tick") -> CheckResult:
        return BY_NAME[checker].check(run.records(), lane)

    return ask_about


def words(answer: CheckResult) -> str:
    """Everything an answer says, for a message and for a search."""
    return "\n".join([*answer.reasons, str(answer.first_offence)])
