"""Reports pod statuses to the API until it takes them, however long it is away (the kubelet's status manager).

Only the newest status of a pod is kept: a pod that ran and ended within an outage is reported once, as ended.
"""

import asyncio
import contextlib
import datetime
from collections.abc import Callable
from dataclasses import dataclass

from chaos.testbed.kube import STRATEGIC, TRANSPORT_ERRORS, Json, Kube
from chaos.testbed.node.manifest import PodSpec

WORKERS = 16  # requests at once; the apiserver gives mutating requests of one client a share of some 100 seats
RETRY_S = 0.5


@dataclass(frozen=True)
class Report:
    """What to do about one pod: patch `status` if there is one, then delete it with grace 0 if `remove`."""

    namespace: str
    name: str
    uid: str
    status: Json | None
    remove: bool = False


class Reporter:
    """Call `put` for a pod's newest status; `run` delivers until cancelled."""

    def __init__(self, kube: Kube, say: Callable[[str], None]) -> None:
        self._kube = kube
        self._say = say
        self._newest: dict[str, Report] = {}
        self._busy: set[str] = set()
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    def put(self, report: Report) -> None:
        waiting = self._newest.get(report.uid)
        self._newest[report.uid] = report
        if waiting is None and report.uid not in self._busy:
            self._queue.put_nowait(report.uid)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._deliver_forever())

    async def _deliver_forever(self) -> None:
        while True:
            uid = await self._queue.get()
            report = self._newest.pop(uid)
            self._busy.add(uid)
            try:
                delivered = await self._deliver(report)
            finally:
                self._busy.discard(uid)
            if not delivered:
                self._newest.setdefault(uid, report)  # unless a newer one came meanwhile
                await asyncio.sleep(RETRY_S)
            if uid in self._newest:
                self._queue.put_nowait(uid)

    async def _deliver(self, report: Report) -> bool:
        path = f"/api/v1/namespaces/{report.namespace}/pods/{report.name}"
        with contextlib.suppress(*TRANSPORT_ERRORS):
            if report.status is not None:
                body: Json = {"metadata": {"uid": report.uid}, "status": report.status}
                reply = await self._kube.request("PATCH", f"{path}/status", body, content_type=STRATEGIC)
                if reply.status in (404, 409):
                    return await self._is_gone(path, report.uid)
                if reply.status in (400, 422):  # asking again would not help
                    self._say(f"status of {report.namespace}/{report.name} refused: {reply.message}")
                    return True
                if not reply.ok:
                    return False
            if report.remove:
                body = {"gracePeriodSeconds": 0, "preconditions": {"uid": report.uid}}
                reply = await self._kube.request("DELETE", path, body)
                return reply.ok or await self._is_gone(path, report.uid)
            return True
        return False

    async def _is_gone(self, path: str, uid: str) -> bool:
        """Whether no pod of this uid is left. A 409 alone does not say: it may be a write that met another."""
        reply = await self._kube.request("GET", path)
        return reply.status == 404 or (reply.ok and reply.body["metadata"]["uid"] != uid)


def timestamp() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def running(pod: PodSpec, started_at: str) -> Json:
    return _status("Running", pod, {"running": {"startedAt": started_at}}, started_at, ready=True)


def ended(pod: PodSpec, started_at: str, code: int, reason: str = "", message: str = "") -> Json:
    """Succeeded or Failed by the exit code. `reason` is given where the end was not the process's own."""
    terminated: Json = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": started_at,
        "finishedAt": timestamp(),
    }
    status: Json = _status(
        "Succeeded" if code == 0 else "Failed", pod, {"terminated": terminated}, started_at, ready=False
    )
    return status | {key: value for key, value in (("reason", reason), ("message", message)) if value}


def waiting(pod_name: str, reason: str, message: str) -> Json:
    """A container that cannot be made: the pod stays Pending and says why, as a kubelet's does."""
    state: Json = {"waiting": {"reason": reason, "message": message}}
    container: Json = {"name": pod_name, "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    return {"phase": "Pending", "containerStatuses": [container]}


def _status(phase: str, pod: PodSpec, state: Json, started_at: str, *, ready: bool) -> Json:
    truth = {True: "True", False: "False"}
    return {
        "phase": phase,
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": started_at,
        "conditions": [
            {"type": kind, "status": truth[ready or kind in ("Initialized", "PodScheduled")]}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "name": pod.container,
                "image": "process",
                "imageID": "",
                "containerID": f"process://{pod.uid}",
                "ready": ready,
                "started": ready,
                "restartCount": 0,
                "state": state,
            }
        ],
    }
