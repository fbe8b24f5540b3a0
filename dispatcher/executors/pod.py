"""The Pod of one attempt. Pure: everything random or secret is handed in."""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from dispatcher.errors import SpecRefused
from dispatcher.executors import Attempt

ROW_LABEL = "rideout.dev/row"
EPOCH_LABEL = "rideout.dev/epoch"
TRY_LABEL = "rideout.dev/try"
INSTANCE_LABEL = "app.kubernetes.io/instance"
"""Tells the pods of two dispatchers in one namespace apart: each cleans up its own only (R22)."""
MANAGED_BY = {"app.kubernetes.io/managed-by": "rideout"}

_LABEL_MAX = 63  # a pod's name becomes its hostname: a DNS label
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # k8s.io/apimachinery/pkg/util/rand: no vowels, no look-alikes
_RANDOM = 8
_NOT_DNS = re.compile(r"[^a-z0-9]+")

_FROM_THE_POD = {"RIDEOUT_POD_UID": "metadata.uid", "RIDEOUT_POD_NAME": "metadata.name"}

# Restricted Pod Security; a task that needs more belongs to a dispatcher with another template.
_POD_SECURITY = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
_CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def random_pod_name(run_name: str, task_key: str) -> str:
    """`<run>-<task>-<8 random>`, random per create, a valid DNS label whatever the names hold (R17)."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM))
    room = _LABEL_MAX - _RANDOM - 2
    run = _dns(run_name)[: room // 2].strip("-")
    task = _dns(task_key)[: room - len(run)].strip("-")
    return "-".join(part for part in (run, task, suffix) if part)


def pod_for(
    attempt: Attempt,
    *,
    name: str,
    token: str,
    agent_command: Sequence[str],
    dispatchers: Sequence[str],
    instance: str = "default",
) -> dict[str, Any]:
    """The manifest of an attempt: its row id, its epoch and a token signed for exactly that pair (R11).

    :raises SpecRefused: the spec names no command.
    """
    spec = attempt.spec
    command = command_of(spec)
    identity = environment_of(attempt, token, dispatchers)
    env: list[dict[str, Any]] = [
        {"name": name, "value": value} for name, value in identity.items() if name not in _FROM_THE_POD
    ]
    env += [_downward(name, path) for name, path in _FROM_THE_POD.items()]
    container: dict[str, Any] = {
        "name": "task",
        "image": spec.get("image") or "rideout-agent",
        "command": [*agent_command, "--", *command],
        "env": env,
        "securityContext": _CONTAINER_SECURITY,
    }
    if spec.get("resources"):
        container["resources"] = spec["resources"]
    pod_spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _POD_SECURITY,
        "containers": [container],
    }
    labels = {
        **(spec.get("labels") or {}),
        **MANAGED_BY,
        INSTANCE_LABEL: instance,
        ROW_LABEL: str(attempt.row_id),
        EPOCH_LABEL: str(attempt.epoch),
        TRY_LABEL: str(attempt.try_number),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": attempt.namespace, "labels": labels},
        "spec": pod_spec,
    }


def command_of(spec: Mapping[str, Any]) -> list[str]:
    """:raises SpecRefused: the spec names no command."""
    command = [*(spec.get("command") or ()), *(spec.get("args") or ())]
    if not command:
        raise SpecRefused("the task's spec names no command")
    return command


def environment_of(attempt: Attempt, token: str, dispatchers: Sequence[str]) -> dict[str, str]:
    """The user's environment and the attempt's identity; the identity comes last, a task cannot overwrite it."""
    # The agent ends the task at its timeout and reports a failed try. An activeDeadlineSeconds would have the kubelet
    # stop the agent, which is *lost*: an infra fault, re-placed for ever (R16).
    timeout_s = attempt.spec.get("timeout_s")
    return {
        **(attempt.spec.get("env") or {}),
        **({"RIDEOUT_TIMEOUT_S": str(timeout_s)} if timeout_s else {}),
        "RIDEOUT_ROW": str(attempt.row_id),
        "RIDEOUT_EPOCH": str(attempt.epoch),
        "RIDEOUT_TRY": str(attempt.try_number),
        "RIDEOUT_TOKEN": token,
        "RIDEOUT_DISPATCHERS": ",".join(dispatchers),
    }


def _downward(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _dns(text: str) -> str:
    return _NOT_DNS.sub("-", text.lower()).strip("-")
