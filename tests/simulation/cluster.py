"""A simulated kube-apiserver and its etcd: creates, lists and deletes of pods, with every fault of `faults`.

The product's own executor, limiter, deadline, classification and pod lists run against it; only the connection is
ours (`SimClient` for `OneShotApiClient`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from dispatcher.errors import Answer
from dispatcher.executors.transport import Progress
from tests.simulation.faults import JSON, NEVER, UP, Mix, plain, status
from tests.simulation.ground import ORIGIN, Creation, Ground, Listing
from tests.simulation.process import Point, Process

PAGE = 3
"""Pods on a page, so that a schedule's few pods already make several."""


@dataclass(slots=True, eq=False)
class Pod:
    """One pod object, and what a node makes of it."""

    uid: str
    row: int
    epoch: int
    try_number: int
    body: dict[str, Any]
    created_at: float
    bound: bool = False
    started: bool = False
    phase: str = "Pending"
    reason: str = ""
    finished_at: float | None = None
    deleting: bool = False
    gone: bool = False
    agents: list[Any] = field(default_factory=list)

    @property
    def cannot_report(self) -> bool:
        """R20: finished, going, or bound to a node and not started."""
        return self.phase in ("Succeeded", "Failed") or self.deleting or (self.bound and not self.started)

    def environment(self) -> dict[str, str]:
        """What the container sees: the manifest's values, and the downward API's."""
        values = {one["name"]: one.get("value") for one in self.body["spec"]["containers"][0]["env"]}
        fields = {"RIDEOUT_POD_UID": self.uid, "RIDEOUT_POD_NAME": self.body["metadata"]["name"]}
        return {name: value if value is not None else fields[name] for name, value in values.items()}


class Cluster:
    """The API. `mix` is what creates meet, `reads` what lists and deletes meet."""

    def __init__(self, ground: Ground, accept: Callable[[Pod], None], remove: Callable[[Pod], None]) -> None:
        self._ground = ground
        self._accept, self._remove = accept, remove
        self.mix: Mix = UP
        self.reads = "ok"
        self.jitter_s = 0.02
        """How much longer an answer may take, drawn for each create."""
        self.pods: dict[str, Pod] = {}

    def behave(self, mix: Mix) -> None:
        self.mix = mix
        self.reads = "refused" if mix.refuses_connections else "ok"

    def client(self, process: Process) -> "SimConnection":
        return SimConnection(self, process)

    async def create(self, process: Process, body: dict[str, Any], progress: Progress) -> Answer:
        ground, labels = self._ground, body["metadata"]["labels"]
        row, epoch = int(labels["rideout.dev/row"]), int(labels["rideout.dev/epoch"])
        creation = Creation(
            process.name, row, epoch, int(labels["rideout.dev/try"]), body["metadata"]["name"], ground.now
        )
        ground.notes.creations.append(creation)
        same = sum(one.row == row and one.epoch == epoch for one in ground.notes.creations)
        creation.uid = f"{row}-{epoch}-{same}"
        creation.fault = fault = self.mix.pick(ground.chance("create", row, epoch))
        try:
            process.springs(Point.BEFORE_POST)
            await process.awake()
            progress.sent = fault.sent
            if fault.commits_after_s is not None:
                ground.later(fault.commits_after_s, self._commit, creation, body)
            jitter = self.jitter_s * ground.chance("latency", row, epoch)
            if fault.answers_after_s == NEVER:
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(fault.answers_after_s + jitter)
            await process.awake()
            process.springs(Point.BEFORE_ANSWER)
            await process.awake()
            return fault.reply(_stored(body, creation.uid))
        except asyncio.CancelledError:
            creation.gave_up = True
            await process.awake()
            raise
        finally:
            if not process.dead:
                creation.returned_at = ground.now

    def _commit(self, creation: Creation, body: dict[str, Any]) -> None:
        ground = self._ground
        creation.committed_at = ground.now
        pod = Pod(creation.uid, creation.row, creation.epoch, creation.try_number, body, ground.now)
        self.pods[pod.uid] = pod
        self._accept(pod)

    async def read(self, process: Process, method: str, path: str, body: dict[str, Any] | None) -> Answer:
        await process.awake()
        trouble = {
            "refused": lambda: _raise(ConnectionRefusedError()),
            "429": lambda: plain(429, b"Too many requests", Retry_After="1")({}),
            "500": lambda: status(500, None, "etcdserver: request timed out")({}),
            "cut": lambda: Answer(200, JSON, b'{"kind":"PodList","items":[{"metadata"'),
            "status 200": lambda: Answer(200, JSON, b'{"kind":"Status","status":"Failure"}'),
        }.get(self.reads)
        if self.reads == "hangs":
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0.01)
        await process.awake()
        if trouble is not None:
            return trouble()
        return self._list(path) if method == "GET" else self._delete(path, body or {})

    def _list(self, path: str) -> Answer:
        query = parse_qs(urlsplit(path).query)
        namespace = urlsplit(path).path.split("/")[4]
        pods = [one for one in self.pods.values() if one.body["metadata"]["namespace"] == namespace]
        begin = int(query.get("continue", ["0"])[0])
        if begin and self.reads == "410":
            return status(410, "Expired", "The provided continue parameter is too old")({})
        page, left = pods[begin : begin + PAGE], max(0, len(pods) - begin - PAGE)
        metadata: dict[str, Any] = {"resourceVersion": "1"}
        if self.reads == "partial":
            return _json({"kind": "PodList", "metadata": {"remainingItemCount": len(pods) + 1}, "items": []})
        if left:
            metadata |= {"continue": str(begin + PAGE), "remainingItemCount": left}
        else:
            self._ground.notes.listings.append(
                Listing(self._ground.now, {one.uid: one.cannot_report for one in self.pods.values()})
            )
        return _json({"kind": "PodList", "metadata": metadata, "items": [self._shown(one) for one in page]})

    def _delete(self, path: str, body: dict[str, Any]) -> Answer:
        name, uid = urlsplit(path).path.rsplit("/", 1)[1], body["preconditions"]["uid"]
        pod = self.pods.get(uid)
        if pod is None or pod.body["metadata"]["name"] != name:
            return status(404, "NotFound")({})
        self._ground.notes.deletions.append((uid, pod.finished_at is not None))
        self._remove(pod)
        return _json({"kind": "Pod", "metadata": {"name": name}})

    def _shown(self, pod: Pod) -> dict[str, Any]:
        metadata = {**pod.body["metadata"], "uid": pod.uid, "creationTimestamp": self._time(pod.created_at)}
        if pod.deleting:
            metadata["deletionTimestamp"] = self._time(self._ground.now)
        state: dict[str, Any] = {"waiting": {"reason": pod.reason or "ContainerCreating"}}
        if pod.finished_at is not None and pod.started:
            state = {"terminated": {"reason": pod.reason or "Completed", "finishedAt": self._time(pod.finished_at)}}
        elif pod.started:
            state = {"running": {}}
        shown: dict[str, Any] = {"phase": pod.phase, "containerStatuses": [{"state": state}] if pod.bound else []}
        if pod.reason:
            shown["reason"] = pod.reason
        return {"metadata": metadata, "spec": {"nodeName": "node"} if pod.bound else {}, "status": shown}

    def _time(self, at: float) -> str:
        return (ORIGIN + timedelta(seconds=at)).isoformat()


class SimConnection:
    """In the place of the product's `Connection`: always connected, to the simulated API."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster, self._process = cluster, process

    async def client(self) -> "SimConnection":
        return self

    async def read_anew(self, *_: Any) -> None: ...

    async def close(self) -> None: ...

    async def post(self, path: str, body: dict[str, Any], *, user_agent: str, progress: Progress) -> Answer:
        return await self._cluster.create(self._process, body, progress)

    async def request(self, method: str, path: str, body: dict[str, Any] | None, *, deadline_s: float) -> Answer:
        async with asyncio.timeout(deadline_s):
            return await self._cluster.read(self._process, method, path, body)


def _stored(body: dict[str, Any], uid: str) -> dict[str, Any]:
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": body["metadata"]["name"], "uid": uid}}


def _json(content: dict[str, Any]) -> Answer:
    return Answer(200, JSON, orjson.dumps(content))


def _raise(error: Exception) -> Answer:
    raise error
