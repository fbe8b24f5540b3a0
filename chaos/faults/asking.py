"""Ask the apiserver with real creates of the suite's own, and wait for the answer however long it takes.

The probe gives up after 3 s: it has to say often whether the API is there. What a webhook or a load balancer *does*
to a create is told by the answer itself, which may take a webhook's whole timeout. So a fault asks once more, under
the probe's identity and over the same way as the dispatchers, and keeps what it was told as its evidence.
"""

import asyncio
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Ground
from chaos.testbed.kube import TRANSPORT_ERRORS, Kube, Reply

FIRED_S = 30.0
"""How long a fault may take to show. A webhook may take 10 s to answer, an informer of the apiserver a second."""
ASK_S = 20.0
PAUSE_S = 0.2
USER_AGENT = "rideout-fault/1"
CALL_FAILED = "Internal error occurred: failed calling webhook "
DENIED = "admission webhook "

_numbers = itertools.count()
Wanted = Callable[[Reply], bool]
Answers = dict[str, tuple[float, Reply]]


@dataclass(frozen=True)
class Asking:
    """How to ask: with which labels, as whom (the way is the same), how many creates together, and whether each of
    them has to be answered as wanted, or one."""

    labels: dict[str, str] = field(default_factory=dict)
    identity: str = "probe"
    at_once: int = 1
    every: bool = False


async def answers(ground: Ground, wanted: Wanted, deadline_s: float, how: Asking = Asking()) -> Answers:
    """For each lane, when (run clock) a real create was asked for that was answered as wanted, and the answer.

    Raises ChaosError, with what was answered instead, where that does not happen within `deadline_s`.
    """
    async with Kube.open(ground.bed.kubeconfig(how.identity), user_agent=USER_AGENT) as kube:
        lanes = list(ground.bed.namespaces)
        asking = (_until(kube, ground, lane, wanted, deadline_s, how) for lane in lanes)
        found = await asyncio.gather(*asking, return_exceptions=True)  # each deletes what it made, whatever others do
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return {lane: one for lane, one in zip(lanes, found, strict=True) if not isinstance(one, BaseException)}


async def shown(ground: Ground, wanted: Wanted, deadline_s: float, how: Asking = Asking()) -> Evidence:
    """The same as evidence. `at` is when the last lane's create was *asked for*: from then on the fault held."""
    found = await answers(ground, wanted, deadline_s, how)
    asked, reply = max(found.values(), key=lambda one: one[0])
    lanes = {lane: round(at, 6) for lane, (at, _) in found.items()}
    return {"at": round(asked, 6), "cause": told(reply), "lanes": lanes}


def told(reply: Reply) -> str:
    """An answer in short."""
    reason, message = reply.body.get("reason"), reply.body.get("message") or "empty body"
    return f"{reply.status} {f'{reason}: ' if reason else ''}{message}"[:300]


async def _until(
    kube: Kube, ground: Ground, lane: str, wanted: Wanted, deadline_s: float, how: Asking
) -> tuple[float, Reply]:
    end, last = ground.now() + deadline_s, "no answer"
    while True:
        asked = ground.now()
        creating = (_create(kube, ground.bed.namespaces[lane], how.labels) for _ in range(how.at_once))
        replies = await asyncio.gather(*creating)
        as_wanted = [reply for reply in replies if isinstance(reply, Reply) and wanted(reply)]
        if as_wanted and (not how.every or len(as_wanted) == len(replies)):
            return asked, as_wanted[0]
        last = next(told(reply) if isinstance(reply, Reply) else reply for reply in replies if reply not in as_wanted)
        if ground.now() > end:
            raise ChaosError(f"no create in {lane} was answered as it should be within {deadline_s:g} s; last: {last}")
        await asyncio.sleep(PAUSE_S)


async def _create(kube: Kube, namespace: str, labels: dict[str, str]) -> Reply | str:
    """One create, deleted again if it was accepted: its answer, or in words why there was none."""
    path, pod = f"/api/v1/namespaces/{namespace}/pods", _pod(labels)
    try:
        reply = await kube.request("POST", path, pod, deadline_s=ASK_S)
        if reply.status == 201:
            await kube.request("DELETE", f"{path}/{pod['metadata']['name']}", query={"gracePeriodSeconds": "0"})
        return reply
    except TRANSPORT_ERRORS as error:
        return f"{type(error).__name__} {error}".strip()


def _pod(labels: dict[str, str]) -> dict[str, Any]:
    """A Pod that never runs: its scheduling gate is nobody's to open."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"asked-{os.getpid()}-{next(_numbers)}",
            "labels": {"rideout.dev/probe": "true", **labels},
        },
        "spec": {
            "schedulingGates": [{"name": "rideout.dev/probe"}],
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "none", "image": "rideout.invalid/none"}],
        },
    }
