"""Waits, and pods as the tests make them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chaos.faults import Evidence, Fault, Ground
from chaos.probe import Probe
from chaos.testbed.kube import TRANSPORT_ERRORS, Kube, Reply

LANES = ("buffered", "tick")


async def until(
    holds: Callable[[], Awaitable[Any]] | Callable[[], Any], what: str, deadline_s: float = 30, pause_s: float = 0.05
) -> Any:
    """The first truthy value of `holds`; fails loudly with what was waited for. Lost answers are asked for again."""
    end = time.monotonic() + deadline_s
    while True:
        try:
            value = holds()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
        except TRANSPORT_ERRORS:
            value = "no answer"
        assert time.monotonic() < end, f"waited {deadline_s} s for {what}; last: {value!r}"
        await asyncio.sleep(pause_s)


class Pods:
    """Pods of one test in one lane's namespace, as the dispatcher makes them."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube = kube
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    async def create(self, name: str, shell: str, **spec: Any) -> Reply:
        """A pod that runs `shell` by sh -c, with labels of row 7 in epoch 3."""
        return await self.kube.request("POST", self.path, pod(name, ["sh", "-c", shell], **spec))

    async def get(self, name: str) -> Reply:
        return await self.kube.request("GET", f"{self.path}/{name}", deadline_s=5)

    async def phase(self, name: str) -> str:
        reply = await self.get(name)
        return str(reply.body["status"]["phase"]) if reply.ok else str(reply.status)

    async def reach(self, name: str, *phases: str, deadline_s: float = 30) -> str:
        """Wait until the pod is in one of `phases` ("404": it is gone)."""

        async def reached() -> str | None:
            phase = await self.phase(name)
            return phase if phase in phases else None

        return str(await until(reached, f"pod {name} to be {' or '.join(phases)}", deadline_s))

    async def delete(self, name: str, grace_s: int | None = None) -> Reply:
        body = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        return await self.kube.request("DELETE", f"{self.path}/{name}", body)


def pod(name: str, command: list[str], **spec: Any) -> dict[str, Any]:
    env = [
        {"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "GREETING", "value": "hello $(UID)"},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"rideout.dev/row": "7", "rideout.dev/epoch": "3"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "task", "image": "none", "command": command, "env": env}],
            **spec,
        },
    }


async def fired(fault: Fault, ground: Ground) -> Evidence:
    """Inject it and have it confirmed; a sabotaged fault may say so in either step."""
    await fault.inject(ground)
    return await fault.confirm_fired(ground)


def quickly_not_seen(monkeypatch: pytest.MonkeyPatch, deadline_s: float = 1.5) -> None:
    """Let the probe give up soon: what a sabotaged fault does not show need not be waited for."""
    wait = Probe.wait_refused
    monkeypatch.setattr(Probe, "wait_refused", lambda probe, since, most: wait(probe, since, min(most, deadline_s)))
