"""Undos that are a call to somebody's API, or a file that has to go."""

from pathlib import Path

import pytest

from chaos.errors import ChaosError
from chaos.undo import replay
from tests.unit.test_suite_undo import Control


def call(url: str, method: str = "PUT", body: object = None) -> dict[str, object]:
    return {"do": "call", "method": method, "url": url, "body": body, "tls": None, "done": "it admits again"}


def test_a_call_is_made_as_it_was_written_down():
    control = Control()
    assert replay(call(f"{control.url}/mode", "POST", {"mode": "admit"})) == "it admits again"
    assert control.asked == [("POST", "/mode", '{"mode": "admit"}')]


def test_a_call_to_somebody_who_is_gone_has_nothing_to_put_right():
    assert "went with its testbed" in replay(call("http://127.0.0.1:1/mode"))


def test_a_call_that_is_refused_is_told():
    control = Control()
    control.say = 409
    with pytest.raises(ChaosError, match="refused POST"):
        replay(call(f"{control.url}/mode", "POST"))


def test_a_file_is_removed_and_may_be_gone(tmp_path: Path):
    page = tmp_path / "503"
    page.touch()
    step = {"do": "remove-file", "file": str(page), "done": "the page is off"}
    assert replay(step) == replay(step) == "the page is off"
    assert not page.exists()
