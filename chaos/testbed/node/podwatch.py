"""What the API says about this node's pods: a list, then a watch from there, and again after every break."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal

from chaos.testbed.kube import TRANSPORT_ERRORS, Json, Kube

RETRY_S = 0.2
PAGE = "500"
SILENCE_S = 90.0  # bookmarks come about once a minute
PATH = "/api/v1/pods"


@dataclass(frozen=True)
class Seen:
    """`list`: all pods of the node, complete. `change`: one pod as it is now. `gone`: one pod that is no more."""

    kind: Literal["list", "change", "gone"]
    pods: list[Json]


async def observe(kube: Kube, node: str, say: Callable[[str], None]) -> AsyncIterator[Seen]:
    """Yield for ever, through any outage. A watch that breaks or is too old (410) is followed by a new list."""
    query = {"fieldSelector": f"spec.nodeName={node}"}
    failing = False
    while True:
        try:
            pods, version = await _list(kube, query)
            if failing:
                say(f"listed {len(pods)} pods again")
            failing = False
            yield Seen("list", pods)
            async for event in kube.watch(PATH, {**query, "resourceVersion": version}, silence_s=SILENCE_S):
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield Seen("change", [event["object"]])
                elif event["type"] == "DELETED":
                    yield Seen("gone", [event["object"]])
                elif event["type"] == "ERROR":
                    say(f"watch ended: {event['object'].get('code')} {event['object'].get('message', '')}")
                    break
        except (*TRANSPORT_ERRORS, ValueError, ListRefused) as error:  # ValueError: a line that was cut off
            if not failing:
                say(f"pods cannot be watched: {type(error).__name__}: {error}")
            failing = True
        await asyncio.sleep(RETRY_S)


class ListRefused(Exception):
    """The list was answered with an error; a partial list proves nothing, so it is thrown away whole."""


async def _list(kube: Kube, query: dict[str, str]) -> tuple[list[Json], str]:
    pods: list[Json] = []
    following: dict[str, str] = {}
    while True:
        reply = await kube.request("GET", PATH, query={**query, "limit": PAGE, **following}, deadline_s=30)
        if not reply.ok:
            raise ListRefused(reply.message)
        pods += reply.body["items"]
        meta = reply.body["metadata"]
        if not meta.get("continue"):
            return pods, meta["resourceVersion"]
        following = {"continue": meta["continue"]}
