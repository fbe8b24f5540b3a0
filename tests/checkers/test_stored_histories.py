"""Every checker on stored histories: good ones are valid, and each kind of bad one is caught for the right reason."""

import re
from pathlib import Path

import orjson
import pytest

from chaos.checkers import CHECKERS, Verdict
from chaos.records import Records

HISTORIES = Path(__file__).with_name("histories")
STORED = sorted(path.name for path in HISTORIES.iterdir())
BY_NAME = {checker.name: checker for checker in CHECKERS}


@pytest.mark.parametrize("name", STORED)
def test_the_answer_to_a_stored_history(name: str):
    expected = orjson.loads((HISTORIES / name / "expect.json").read_bytes())
    answer = BY_NAME[expected["checker"]].check(Records.load(HISTORIES / name), expected["lane"])
    said = "\n".join([*answer.reasons, str(answer.first_offence)])
    assert answer.verdict == expected["verdict"], said
    assert re.search(expected["says"], said), said
    assert (answer.first_offence is not None) == (answer.verdict is Verdict.INVALID)
    assert bool(answer.reasons) == (answer.verdict is not Verdict.VALID)


@pytest.mark.parametrize("checker", sorted(BY_NAME))
def test_every_checker_has_a_good_and_a_bad_history(checker: str):
    mine = [name for name in STORED if name.split("-")[0] == checker]
    assert f"{checker}-good" in mine
    assert any(name.startswith(f"{checker}-bad-") for name in mine)


def test_no_history_is_without_its_checker():
    assert {name.split("-")[0] for name in STORED} == set(BY_NAME)
