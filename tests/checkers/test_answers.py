"""The judge's own reading of R1 to R3, from what the audit log knows of an answer: code, reason, message."""

import json
from pathlib import Path
from typing import Any

import pytest

from chaos.audit import answer_of

QUOTA = 'pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5'
DENIED = 'admission webhook "a.example.test" denied the request: maintenance'
CASES = json.loads((Path(__file__).parents[1] / "cases" / "create_outcomes.json").read_text(encoding="utf-8"))
PLAIN = [
    case
    for case in CASES
    if case.get("http")
    and case["expect"] in ("Placed", "Unavailable", "Backpressure", "Rejected")
    and case["id"] != "C82"
]  # C82 answers something else than a create


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case["id"])
def test_R1_to_R3_what_people_met_is_read_as_the_rules_say(case: dict[str, Any]):
    body = case["http"].get("body")
    status = body if isinstance(body, dict) and body.get("kind") == "Status" else {}
    told = (case["http"]["status"], status.get("reason") or "", status.get("message") or "")
    assert answer_of(*told) == case["expect"], case["title"]


@pytest.mark.parametrize(
    ("code", "reason", "message", "answer"),
    [
        (503, "ServiceUnavailable", "", "Unavailable"),
        (504, "Timeout", "", "Unavailable"),
        (500, "ServerTimeout", "", "Unavailable"),
        (500, "", "etcdserver: leader changed", "Unavailable"),
        (500, "SomethingNew", "", "Unavailable"),
        (502, "", "", "Unavailable"),
        (408, "", "", "Unavailable"),
        (200, "", "", "Unavailable"),
        (0, "", "", "Unavailable"),
        (429, "", "", "Backpressure"),
        (403, "Forbidden", QUOTA, "Backpressure"),
        (403, "Forbidden", 'pods "a" is forbidden: failed quota: q: must specify cpu', "Rejected"),
        (403, "Forbidden", "quoted: " + QUOTA, "Rejected"),
        (307, "", "", "Rejected"),
        (418, "", "", "Rejected"),
        (500, "Forbidden", "", "Rejected"),
    ],
)
def test_R1_a_known_reason_decides_and_only_without_one_the_code(code: int, reason: str, message: str, answer: str):
    assert answer_of(code, reason, message) == answer


@pytest.mark.parametrize("code", [400, 403, 429, 500, 503, 504])
@pytest.mark.parametrize("reason", ["", "TooManyRequests", "ServiceUnavailable", "InternalError"])
def test_R2_a_webhook_that_denies_has_answered_whatever_code_it_borrows(code: int, reason: str):
    assert answer_of(code, reason, DENIED) == "Rejected"


def test_R2_a_webhook_that_could_not_be_called_is_an_outage_even_where_it_quotes_a_denial():
    message = f'Internal error occurred: failed calling webhook "a": {DENIED}'
    assert answer_of(500, "InternalError", message) == "Unavailable"
