"""The Pod of an attempt: its name (R17), its identity (R11), what a task can and cannot say."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dispatcher.errors import SpecRefused
from dispatcher.executors.pod import pod_for, random_pod_name
from dispatcher.rules import Disposition
from tests.faults.client import ATTEMPT, Client
from tests.faults.server import FaultServer

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""k8s.io/apimachinery/pkg/util/validation: DNS-1123 label, at most 63 characters."""


def manifest(**spec: Any) -> dict[str, Any]:
    attempt = replace(ATTEMPT, spec={"command": ["run"], **spec})
    return pod_for(attempt, name="n", token="secret", agent_command=["agent"], dispatchers=["http://a", "http://b"])


def environment(pod: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(one["name"], one.get("value", one.get("valueFrom"))) for one in pod["spec"]["containers"][0]["env"]]


@settings(max_examples=500)
@given(run=st.text(), task=st.text())
@example(run="", task="")
@example(run="-" * 80, task="." * 80)
@example(run="a" * 300, task="b" * 300)
@example(run="a" * 25 + "-" * 5, task="-b")
@example(run="İ", task="ß" * 70)
@example(run="\ud800", task="\0")
@example(run="2026", task="9")
def test_R17_a_pod_name_is_a_dns_label_whatever_the_names_hold(run: str, task: str):
    name = random_pod_name(run, task)
    assert DNS_LABEL.fullmatch(name), name
    assert len(name) <= 63


def test_R17_the_name_says_run_and_task_and_is_another_each_time():
    names = {random_pod_name("Nightly Import", "load/orders") for _ in range(200)}
    assert len(names) == 200
    for name in names:
        assert re.fullmatch(r"nightly-import-load-orders-[a-z0-9]{8}", name)


def test_R17_a_long_run_name_leaves_room_for_the_task():
    assert "-load-" in random_pod_name("x" * 100, "load")


def test_R11_the_pod_carries_exactly_its_attempt():
    pod = manifest()
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "rideout",
        "app.kubernetes.io/instance": "default",
        "rideout.dev/row": "7",
        "rideout.dev/epoch": "3",
        "rideout.dev/try": "1",
    }
    assert dict(environment(pod)) == {
        "RIDEOUT_ROW": "7",
        "RIDEOUT_EPOCH": "3",
        "RIDEOUT_TRY": "1",
        "RIDEOUT_TOKEN": "secret",
        "RIDEOUT_DISPATCHERS": "http://a,http://b",
        "RIDEOUT_POD_UID": {"fieldRef": {"fieldPath": "metadata.uid"}},
        "RIDEOUT_POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
    }
    assert pod["spec"]["containers"][0]["command"] == ["agent", "--", "run"]


@pytest.mark.parametrize("name", ["RIDEOUT_ROW", "RIDEOUT_EPOCH", "RIDEOUT_TOKEN", "RIDEOUT_POD_UID"])
def test_R11_a_task_cannot_overwrite_its_identity(name: str):
    values = [value for key, value in environment(manifest(env={name: "forged"})) if key == name]
    assert len(values) == 1
    assert values != ["forged"]


@pytest.mark.parametrize("label", ["rideout.dev/row", "rideout.dev/epoch", "app.kubernetes.io/managed-by"])
def test_R11_a_task_cannot_overwrite_its_labels(label: str):
    assert manifest(labels={label: "forged", "team": "blue"})["metadata"]["labels"][label] != "forged"


def test_what_a_task_may_say():
    pod = manifest(
        image="busybox",
        args=["-v"],
        env={"A": "1"},
        labels={"team": "blue"},
        resources={"limits": {"cpu": "1"}},
        timeout_s=90,
    )
    container = pod["spec"]["containers"][0]
    assert (container["image"], container["resources"]) == ("busybox", {"limits": {"cpu": "1"}})
    assert container["command"][-2:] == ["run", "-v"]
    assert ("A", "1") in environment(pod)
    assert pod["metadata"]["labels"]["team"] == "blue"
    assert ("RIDEOUT_TIMEOUT_S", "90") in environment(pod)
    assert "activeDeadlineSeconds" not in pod["spec"], "the kubelet would turn a failed try into a lost agent (R16)"


def test_the_pod_meets_restricted_pod_security():
    """kubernetes.io/docs/concepts/security/pod-security-standards, level restricted."""
    spec = manifest()["spec"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize("spec", [{}, {"command": []}, {"command": None, "args": []}])
def test_R3_a_spec_without_a_command_is_refused_before_sending(
    spec: dict[str, Any], client: Client, server: FaultServer
):
    with pytest.raises(SpecRefused):
        pod_for(replace(ATTEMPT, spec=spec), name="n", token="t", agent_command=["a"], dispatchers=[])
    verdict = client.create(replace(ATTEMPT, spec=spec)).verdict
    assert (verdict.disposition, verdict.cause) == (Disposition.REJECTED, "spec refused by the client")
    assert not verdict.may_exist
    assert server.connections == 0


@pytest.mark.parametrize("spec", [{"command": 7}, {"command": ["x"], "env": [1]}, {"command": ["x"], "labels": "x"}])
def test_R3_a_spec_of_no_known_shape_is_a_bug_that_surfaces_and_kills_nothing(
    spec: dict[str, Any], client: Client, server: FaultServer
):
    """The HTTP API refuses these; a row that holds one all the same is rejected, not sent."""
    verdict = client.create(replace(ATTEMPT, spec=spec)).verdict
    assert verdict.disposition is Disposition.REJECTED
    assert verdict.cause.startswith("bug: ")
    assert not verdict.may_exist
    assert server.connections == 0


@given(text=st.text())
@settings(max_examples=100)
def test_any_text_survives_the_manifest(text: str):
    pod = manifest(command=[text or "x"], env={"TEXT": text})
    assert json.loads(json.dumps(pod)) == pod


def test_a_namespace_cannot_lead_out_of_its_path(client: Client, server: FaultServer):
    from tests.faults.answers import accepts_all

    server.play(accepts_all())
    client.create(replace(ATTEMPT, namespace="a/pods/b?x=1#"))
    assert server.posts[0].path.startswith("/api/v1/namespaces/a%2Fpods%2Fb%3Fx=1%23/pods?") or (
        server.posts[0].path.startswith("/api/v1/namespaces/a%2Fpods%2Fb%3Fx%3D1%23/pods?")
    )
