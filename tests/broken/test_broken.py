"""Each wrong dispatcher turns the invariant red that the table names; its twin is green on the same schedule."""

import importlib
from pathlib import Path

import pytest

from dispatcher.settings import Mode
from tests.broken.table import BROKEN, Case
from tests.simulation.conftest import databases, lasting, migrated_template, server_url
from tests.simulation.invariants import Invariant, Violated
from tests.simulation.lasting import Lasting
from tests.simulation.run import play

__all__ = ["databases", "lasting", "migrated_template", "server_url"]

NO_DISPATCHER = {"__init__", "schedules", "table", "test_broken"}
GREEN = sorted({(case.schedule.__name__, case.replicas): case for case in BROKEN.values()}.items())


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_dispatcher_is_caught(name: str, mode: Mode, lasting: Lasting):
    case = BROKEN[name]
    broken = importlib.import_module(f"tests.broken.{name}")
    with pytest.raises(Violated) as caught:
        play(lasting, case.schedule, mode=mode, replicas=case.replicas, wrong=broken.apply)
    assert caught.value.invariant is case.turns_red, str(caught.value)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("case", [pytest.param(case, id=name) for (name, _), case in GREEN])
def test_its_unbroken_twin_is_not(case: Case, mode: Mode, lasting: Lasting):
    play(lasting, case.schedule, mode=mode, replicas=case.replicas)


def test_every_wrong_dispatcher_is_in_the_table():
    files = {path.stem for path in Path(__file__).parent.glob("*.py")}
    assert files - NO_DISPATCHER == set(BROKEN)


def test_every_invariant_has_a_wrong_dispatcher():
    assert set(Invariant) - {case.turns_red for case in BROKEN.values()} == set()
