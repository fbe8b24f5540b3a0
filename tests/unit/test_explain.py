"""`dispatcher explain`: the real command, and every reported answer through it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dispatcher.cli import app
from dispatcher.errors import classify_answer
from dispatcher.explain import BadInput, answer_from, explain
from dispatcher.rules import Policy
from tests.faults.cases import CASES, MAIN, NOT_A_CREATE, SOCKETS, call_failed, denied
from tests.unit.ride import DEFERRED, unavailable

REPOSITORY = Path(__file__).parents[2]
WORDS = {"Placed", "Unavailable", "Backpressure", "Deferred", "Rejected"}


def run(*arguments: str, stdin: str | bytes = b"", env: Mapping[str, str] | None = None) -> Any:
    return CliRunner().invoke(app, ["explain", *arguments], input=stdin, env=env)


def explained(*arguments: str, stdin: str | bytes = b"", env: Mapping[str, str] | None = None) -> dict[str, Any]:
    result = run("--json", *arguments, stdin=stdin, env=env)
    assert result.exit_code == 0, result.output
    printed: dict[str, Any] = json.loads(result.stdout)
    assert list(printed) == ["disposition", "cause", "may_exist", "rule", "next"]
    assert printed["disposition"] in WORDS
    return printed


def test_the_command_as_people_run_it():
    answer = json.dumps(
        {"status": 503, "headers": {"Retry-After": "1"}, "body": {"kind": "Status", "reason": "ServiceUnavailable"}}
    )
    ended = subprocess.run(
        [sys.executable, "-m", "dispatcher", "explain", "--json"],
        cwd=REPOSITORY,
        input=answer,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(ended.stdout) == {
        "disposition": "Unavailable",
        "cause": "503 ServiceUnavailable",
        "may_exist": True,
        "rule": "R1",
        "next": "offered again at 5, 10, 20, 40, 80, 137, 194 … s after this failure; no attempt is spent; "
        "the first failure starts a window of 15m0s; if nothing changes, the row fails after 15m35s as "
        '"dispatch_failed: Kubernetes API unavailable for 15m35s: 503 ServiceUnavailable"',
    }
    assert ended.stderr == ""


@pytest.mark.parametrize(
    "case_id", [i for i, case in CASES.items() if case["http"] and i not in NOT_A_CREATE and i not in SOCKETS]
)
def test_every_reported_answer_by_its_json(case_id: str):
    case = CASES[case_id]
    expect = MAIN[case_id].value.capitalize() if case_id in MAIN else case["expect"]
    assert explained(stdin=json.dumps(case["http"]))["disposition"] == expect


@pytest.mark.parametrize(
    ("body", "disposition"),
    [
        (denied(": no", 500), "Rejected"),
        (call_failed("EOF"), "Unavailable"),
        ("<html>", "Unavailable"),
        (None, "Unavailable"),
    ],
)
def test_a_body_is_an_object_or_text_by_option_or_by_stdin(body: Any, disposition: str):
    text = body if isinstance(body, str) else json.dumps(body) if body else ""
    by_option = explained("--status", "500", "--body", text)
    assert by_option["disposition"] == disposition
    assert explained("--status", "500", stdin=text) == by_option
    assert explained(stdin=json.dumps({"status": 500, "headers": {}, "body": text})) == by_option
    assert explained(stdin=json.dumps({"status": "500", "body": body})) == by_option


def test_a_status_on_its_own_and_the_audit_logs():
    alone = explained(stdin=json.dumps(denied(": no", 503)))
    assert alone["disposition"] == "Rejected"
    response_status = {key: value for key, value in denied(": no", 503).items() if key not in ("kind", "apiVersion")}
    assert explained(stdin=json.dumps(response_status)) == alone


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_all_that_curl_prints(line_end: str):
    text = "HTTP/1.1 100 Continue\n\nHTTP/2 429 \nretry-after: 30\nserver: x\n\nToo many\n\nrequests"
    assert explained(stdin=text.replace("\n", line_end))["next"].startswith("offered again every 30 s, for ever")
    assert explained(stdin="HTTP/1.0 502 Bad Gateway\n\n")["cause"] == "502 without a Status"
    assert explained(stdin="HTTP/1.1 204 No Content")["cause"] == "204 without a Pod"


def test_headers_are_repeated_and_of_any_case():
    answer = explained("--status", "429", "--header", "X-A: b", "--header", "RETRY-AFTER:  45")
    assert "every 45 s" in answer["next"]
    assert "every 45 s" in explained(stdin='{"status": 429, "headers": {"retry-AFTER": 45}}')["next"]
    assert "every 45 s" in explained(stdin='{"status": 429, "headers": {"Retry-After": ["45", "9"]}}')["next"]


def test_the_times_are_those_of_the_settings():
    quick = explained("--status", "503", env={"RIDEOUT_PROFILE": "quick"})["next"]
    assert quick.startswith("offered again at 0.5, 1, 2, 4, 8, 13.7, 19.4 … s after this failure")
    assert "a window of 1m30s" in quick
    old = explained("--status", "503", env={"RIDEOUT_POLICY": "attempts-only"})["next"]
    assert "each spends one of 6 attempts" in old
    assert "fails after 2m35s" in old


def test_what_is_said_of_each_disposition():
    pod = {"kind": "Pod", "metadata": {"name": "p", "uid": "u"}}
    placed = explained("--status", "201", "--body", json.dumps(pod))
    assert (placed["disposition"], placed["may_exist"]) == ("Placed", True)
    assert "RUNNING" in placed["next"]
    rejected = explained("--status", "401")
    assert "credentials" not in rejected["cause"]
    assert rejected["next"].startswith("token and certificates are read anew; offered again at 5, 15, 35, 75, 155 s")
    deferred = explain(DEFERRED, Policy())
    assert (deferred.disposition, deferred.may_exist) == ("Deferred", False)
    assert "after 1 s" in deferred.next
    assert explained(stdin=json.dumps({"status": 409, "body": {"kind": "Status", "reason": "AlreadyExists"}}))[
        "may_exist"
    ]


def test_the_text_says_the_same_in_words():
    result = run("--status", "403", "--body", json.dumps(denied(": not on Fridays", 403)))
    first, said, exists, after = result.stdout.splitlines()
    assert first == "Rejected: 403 denied by webhook (R2)"
    assert said == '  the API said: admission webhook "w.example.test" denied the request: not on Fridays'
    assert exists == "The pod does not exist."
    assert after.startswith("Next: offered again at 5,")
    assert "The pod may exist." in run("--status", "500").stdout


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (["--status", "abc"], "", "the status must be a whole number from 100 to 599, not 'abc'"),
        (["--status", "99"], "", "not 99"),
        (["--status", "600"], "", "not 600"),
        (["--status", "-1"], "", "status"),
        (["--status", "500", "--header", "no colon"], "", "a header is written 'Name: value', not 'no colon'"),
        (["--status", "500", "--header", ": x"], "", "a header is written"),
        (["--body", "x"], "", "--header and --body need --status"),
        (["--header", "A: b"], "", "--header and --body need --status"),
        ([], "", "neither JSON"),
        ([], "hello", "neither JSON"),
        ([], "[500]", "must be an object"),
        ([], "{}", 'no "status"'),
        ([], '{"status": 500, "header": {}}', "unknown key 'header'"),
        ([], '{"status": true}', "not True"),
        ([], '{"status": 500.5}', "not 500.5"),
        ([], '{"status": null}', "not None"),
        ([], '{"status": 500, "headers": []}', '"headers" must be an object'),
        ([], '{"status": 500, "headers": {"A": {}}}', "the value of header 'A' must be text"),
        ([], '{"kind": "Status", "code": "x"}', "not 'x'"),
        ([], b"\xff\xfe", "neither JSON"),
        ([], "HTTP/1.1 999 X\n\n", "not 999"),
    ],
)
def test_bad_input_is_one_line_and_exits_64(arguments: list[str], stdin: str | bytes, says: str):
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 64, result.output
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stderr.startswith("explain: ")
    assert says in result.stderr


def test_a_wrong_setting_is_said_in_one_line():
    result = run("--status", "500", env={"RIDEOUT_WINDOW_S": "soon"})
    assert result.exit_code == 64
    assert "RIDEOUT_WINDOW_S" in result.stderr


def test_help_has_examples():
    text = run("--help").output
    assert "Examples" in text
    assert "--status" in text
    assert "curl -i" in text


def test_a_pipe_that_nobody_writes_to_does_not_hang(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("dispatcher.explain._STDIN_WAIT_S", 0.1)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stdin:
        assert answer_from("500", [], None, stdin).body == b""
    os.close(writing)
    assert "nothing on stdin" in capsys.readouterr().err


@settings(max_examples=400, deadline=None)
@given(data=st.binary(max_size=200) | st.text(max_size=100).map(lambda text: json.dumps(text).encode()))
def test_any_bytes_are_explained_or_refused(data: bytes):
    for status in (None, "500"):
        try:
            answer = answer_from(status, [], None, BytesIO(data))
        except BadInput as refused:
            assert status is None, refused  # noqa: PT017
        else:
            explain(classify_answer(answer), Policy())
            if status and not data.startswith(b"\xef\xbb\xbf"):
                assert answer.body == data


def test_a_body_with_half_a_surrogate_pair_is_taken():
    assert explained(stdin='{"status": 500, "body": "\\ud800"}')["disposition"] == "Unavailable"


def test_a_window_of_a_day_is_explained_too():
    assert "fails after 24h0m" in explain(unavailable(), Policy(window_s=86_400)).next
