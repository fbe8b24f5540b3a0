"""The Node object and its Lease: made once, renewed every ten seconds, and first of all when the API is back.

A Node whose Lease lapses is tainted `unreachable` after some 50 s and its pods are evicted after 300 s; so after an
outage nothing is more urgent than the next renewal, and a Ready condition that the controller manager turned to
Unknown is set back with it.
"""

import asyncio
import datetime
from collections.abc import Callable

from chaos.testbed.kube import MERGE, STRATEGIC, TRANSPORT_ERRORS, Json, Kube, Reply
from chaos.testbed.node.status import timestamp

RENEW_S = 10.0
RETRY_S = 0.2
LEASE_S = 40
# Room for every pod a run can bind, so that no pod ever waits for capacity: waiting is the dispatcher's business here.
CAPACITY = {"cpu": "1000", "memory": "4096Gi", "pods": "5000", "ephemeral-storage": "4096Gi"}


class Registration:
    """Keeps one Node registered and alive. `up` is set once the API has taken Node and Lease for the first time."""

    def __init__(self, kube: Kube, name: str, version: str, say: Callable[[str], None]) -> None:
        self._kube = kube
        self._name = name
        self._version = version
        self._say = say
        self.up = asyncio.Event()

    async def run(self) -> None:
        """Renew for ever."""
        failing = False
        while True:
            refused = await self._beat()
            if not refused:
                if failing or not self.up.is_set():
                    self._say("lease renewed, node is Ready")
                self.up.set()
            elif not failing:
                self._say(f"lease not renewed: {refused}")
            failing = bool(refused)
            await asyncio.sleep(RETRY_S if refused else RENEW_S)

    async def _beat(self) -> str:
        """Renew the Lease, then see to the Node. Returns what went wrong, "" when nothing did."""
        try:
            reply = await self._renew()
            if reply.ok:
                reply = await self._see_to_node()
            return "" if reply.ok else reply.message
        except TRANSPORT_ERRORS as error:
            return f"{type(error).__name__}: {error}"

    async def _renew(self) -> Reply:
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self._name, "leaseDurationSeconds": LEASE_S, "renewTime": now}
        reply = await self._kube.request(
            "PATCH", f"{path}/{self._name}", {"spec": spec}, content_type=MERGE, deadline_s=5
        )
        if reply.status == 404:
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": "kube-node-lease"},
                "spec": spec,
            }
            reply = await self._kube.request("POST", path, lease, deadline_s=5)
        return reply

    async def _see_to_node(self) -> Reply:
        path = f"/api/v1/nodes/{self._name}"
        reply = await self._kube.request("GET", path, deadline_s=5)
        if reply.status == 404:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._name, "labels": self._labels()}}
            reply = await self._kube.request("POST", "/api/v1/nodes", node, deadline_s=5)
        if reply.ok and not is_ready(reply.body):
            status = {"status": self._status()}
            reply = await self._kube.request("PATCH", f"{path}/status", status, content_type=STRATEGIC, deadline_s=5)
        return reply

    def _labels(self) -> dict[str, str]:
        return {"kubernetes.io/hostname": self._name, "kubernetes.io/os": "linux"}

    def _status(self) -> Json:
        now = timestamp()
        healthy = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        return {
            "capacity": CAPACITY,
            "allocatable": CAPACITY,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": self._name}],
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "RideoutNode", "message": "plays the kubelet", **healthy},
                *(
                    {"type": kind, "status": "False", "reason": "RideoutNode", **healthy}
                    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")
                ),
            ],
            "nodeInfo": {
                "kubeletVersion": self._version,
                "containerRuntimeVersion": "process://rideout",
                "operatingSystem": "linux",
                "osImage": "none",
                "architecture": "amd64",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
            },
        }


def is_ready(node: Json) -> bool:
    """Whether a Node object's Ready condition is True."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
