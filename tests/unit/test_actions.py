"""What may be cleared: never everything by accident (R21)."""

from typing import Any

import pytest
from pydantic import ValidationError

from dispatcher.api.actions import Clear


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"filter": {}},
        {"filter": {"state": None}},
        {"filter": {"reason": ""}},
        {"filter": {"reason": None, "run_id": None}},
        {"ids": []},
        {"ids": [1], "filter": {"run_id": 1}},
    ],
)
def test_R21_a_clear_that_does_not_say_which_rows_is_refused(body: dict[str, Any]):
    with pytest.raises(ValidationError):
        Clear.model_validate(body)


@pytest.mark.parametrize("body", [{"ids": [1]}, {"filter": {"state": "failed"}}, {"filter": {"reason": "dispatch_"}}])
def test_R21_a_clear_that_names_its_rows_is_taken(body: dict[str, Any]):
    assert Clear.model_validate(body).dry_run is False
