"""The webhook's modes: what it says to a review, what it refuses to become, what it remembers."""

from pathlib import Path
from typing import Any

import pytest

from chaos.testbed.certs import Authority
from chaos.testbed.webhook import Gate, checked, review


def gate(tmp_path: Path) -> Gate:
    pair = Authority(tmp_path / "pki").server("webhook")
    return Gate(tmp_path / "mode.json", pair.certificate, pair.key)


def request(**labels: str) -> dict[str, Any]:
    return {"uid": "u-1", "object": {"metadata": {"labels": labels}}}


def test_admits_by_default_and_answers_under_the_same_uid(tmp_path: Path):
    assert review(gate(tmp_path).mode, request()) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }


def test_denies_a_labelled_share_only():
    mode = checked({"mode": "deny", "label": "share=bad", "code": 429, "reason": "TooManyRequests", "message": "no"})
    assert review(mode, request(share="bad"))["response"] == {
        "uid": "u-1",
        "allowed": False,
        "status": {"code": 429, "reason": "TooManyRequests", "message": "no"},
    }
    assert review(mode, request(share="good"))["response"]["allowed"]
    assert review(mode, request())["response"]["allowed"]
    assert review(mode, {"uid": "u-1", "object": None})["response"]["allowed"]


def test_denies_all_without_a_label_and_sets_no_reason_unless_told():
    denied = review(checked({"mode": "deny", "code": 503}), request())["response"]
    assert denied["status"]["code"] == 503
    assert "reason" not in denied["status"]


@pytest.mark.parametrize(
    "mode",
    [
        {},
        [],
        "admit",
        {"mode": "explode"},
        {"mode": "admit", "code": 403},
        {"mode": "deny", "code": "403"},
        {"mode": "deny", "label": "no value"},
        {"mode": "slow", "delay": 1},
        {"mode": "garbage", "status": None},
    ],
)
def test_refuses_what_is_no_mode(mode: Any):
    with pytest.raises(ValueError):
        checked(mode)


def test_comes_back_in_the_mode_it_had(tmp_path: Path):
    (tmp_path / "mode.json").write_text('{"mode": "slow", "delay_s": 2}')
    assert gate(tmp_path).mode == {"mode": "slow", "delay_s": 2}
