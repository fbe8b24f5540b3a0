"""What the API says of our pods. A list is complete or it is an error: a partial one proves nothing (R22)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlencode

import orjson

from dispatcher.errors import DispatcherError
from dispatcher.executors.credentials import Connection
from dispatcher.executors.pod import EPOCH_LABEL, INSTANCE_LABEL, MANAGED_BY, ROW_LABEL

_PAGE = 200  # well under the bound on an answer, also with large pods


class ListFailed(DispatcherError):
    """The list did not come, or not whole. Nothing may be concluded from it."""


@dataclass(frozen=True, slots=True)
class PodFact:
    """One pod, as far as the dispatcher cares."""

    namespace: str
    name: str
    uid: str
    row_id: int
    epoch: int
    finished: bool
    finished_at: datetime | None
    bound: bool
    started: bool
    deleted: bool
    reason: str

    @property
    def cannot_report(self) -> bool:
        """Finished, or bound to a node and not started; a pod that waits for a node may wait for ever (R20)."""
        return self.finished or self.deleted or (self.bound and not self.started)


class Pods(Protocol):
    """Lists and deletes the dispatcher's pods."""

    async def list_all(self, namespaces: Iterable[str]) -> list[PodFact]:
        """Every pod of ours in these namespaces. :raises ListFailed: not a complete answer."""
        ...

    async def delete(self, pod: PodFact) -> bool:
        """Delete exactly this pod (by uid); False if the API did not take it. Never raises for the outside."""
        ...


class KubernetesPods:
    def __init__(self, connection: Connection, *, instance: str, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s
        labels = {**MANAGED_BY, INSTANCE_LABEL: instance}
        self._selector = ",".join(f"{key}={value}" for key, value in labels.items())

    async def list_all(self, namespaces: Iterable[str]) -> list[PodFact]:
        return [pod for namespace in sorted(set(namespaces)) for pod in await self._list(namespace)]

    async def delete(self, pod: PodFact) -> bool:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": pod.uid}}
        try:
            api = await self._connection.client()
            answer = await api.request(
                "DELETE", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", body, deadline_s=self._deadline_s
            )
        except Exception:
            return False
        return answer.status in (200, 202, 404, 409)  # gone, going, or another pod by now

    async def _list(self, namespace: str) -> list[PodFact]:
        found: list[PodFact] = []
        query = {"labelSelector": self._selector, "limit": str(_PAGE)}
        while True:
            page = await self._page(namespace, query)
            found += [fact for item in page["items"] if (fact := fact_of(item)) is not None]
            following = page["metadata"].get("continue")
            if not following:
                return found
            query["continue"] = following

    async def _page(self, namespace: str, query: dict[str, str]) -> dict[str, Any]:
        """One page. A 410 in the middle, a cut body, anything but a PodList: the whole list has failed."""
        try:
            api = await self._connection.client()
            answer = await api.request(
                "GET", f"/api/v1/namespaces/{namespace}/pods?{urlencode(query)}", None, deadline_s=self._deadline_s
            )
            page: Any = orjson.loads(answer.body)
        except Exception as error:
            raise ListFailed(f"no pod list of {namespace}: {type(error).__name__}") from error
        whole = (
            answer.status == 200
            and isinstance(page, dict)
            and page.get("kind") == "PodList"
            and isinstance(page.get("metadata"), dict)
            and isinstance(page.get("items"), list)
        )
        if not whole:
            raise ListFailed(f"no pod list of {namespace}: HTTP {answer.status}")
        if page["metadata"].get("remainingItemCount") and not page["metadata"].get("continue"):
            raise ListFailed(f"a partial pod list of {namespace}")
        return dict(page)


def fact_of(pod: dict[str, Any]) -> PodFact | None:
    """A PodFact of a Pod object; None for a pod that carries no row and epoch of ours."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    labels = metadata.get("labels") or {}
    row_id, epoch = labels.get(ROW_LABEL, ""), labels.get(EPOCH_LABEL, "")
    if not (row_id.isdecimal() and epoch.isdecimal()):
        return None
    states = [one.get("state") or {} for one in status.get("containerStatuses") or []]
    ended = [state["terminated"] for state in states if "terminated" in state]
    return PodFact(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        row_id=int(row_id),
        epoch=int(epoch),
        finished=status.get("phase") in ("Succeeded", "Failed"),
        finished_at=_time(next((one.get("finishedAt") for one in ended), None) or metadata.get("creationTimestamp")),
        bound=bool(spec.get("nodeName")),
        started=any("running" in state or "terminated" in state for state in states),
        deleted="deletionTimestamp" in metadata,
        reason=_why(status, states),
    )


def _why(status: dict[str, Any], states: list[dict[str, Any]]) -> str:
    """The pod's own reason, most telling first."""
    for state in states:
        for kind in ("terminated", "waiting"):
            if reason := (state.get(kind) or {}).get("reason"):
                return str(reason)
    return str(status.get("reason") or status.get("phase") or "unknown")


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
