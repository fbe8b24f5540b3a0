"""When a testbed counts as ready: not when ports are open, but when a lane's pod would be admitted, placed and run."""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from chaos.errors import ChaosError
from chaos.testbed.controlplane.local import NODE_NAME
from chaos.testbed.kube import TRANSPORT_ERRORS, Kube
from chaos.testbed.node.registration import is_ready

if TYPE_CHECKING:
    from chaos.testbed.bed import Testbed


async def settled(bed: "Testbed", admin: Kube, deadline_s: float) -> None:
    """Default ServiceAccounts made, node Ready, creates accepted, webhook called. Raises ChaosError."""
    end = time.monotonic() + deadline_s
    for lane, namespace in bed.namespaces.items():
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        while not (await admin.request("GET", path)).ok:
            if time.monotonic() > end:
                raise ChaosError(
                    f"the controller manager made no default ServiceAccount for lane {lane}",
                    log=bed.controller_manager.log,
                )
            await asyncio.sleep(0.05)
    await bed.node.wait_ready(max(1.0, end - time.monotonic()))
    await api_takes_creates(bed, max(1.0, end - time.monotonic()))
    await _webhook_is_called(bed, end)


async def api_takes_creates(bed: "Testbed", deadline_s: float) -> None:
    """Return once an independent create by the probe, through the proxy, was accepted. Raises ChaosError."""
    end, last = time.monotonic() + deadline_s, "no answer"
    path = f"/api/v1/namespaces/{next(iter(bed.namespaces.values()))}/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "ready-"}}
    while True:
        with contextlib.suppress(*TRANSPORT_ERRORS):
            async with Kube.open(bed.kubeconfig("probe")) as probe:
                reply = await probe.request("POST", path, body, deadline_s=3)
                if reply.status == 201:
                    await probe.request("DELETE", f"{path}/{reply.body['metadata']['name']}")
                    return
                last = reply.message
        if time.monotonic() > end:
            raise ChaosError(f"the API took no create within {deadline_s:g} s: {last}", log=bed.apiserver.log)
        await asyncio.sleep(0.1)


async def _webhook_is_called(bed: "Testbed", end: float) -> None:
    """The apiserver learns of a webhook configuration by a watch: creates before that would pass it by."""
    path = f"/api/v1/namespaces/{next(iter(bed.namespaces.values()))}/pods"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "is-the-webhook-called"},
        "spec": {"containers": [{"name": "none", "image": "none"}]},
    }
    async with Kube.open(bed.kubeconfig("probe")) as probe:
        while True:
            before = (await bed.webhook_mode())["seen"]
            with contextlib.suppress(*TRANSPORT_ERRORS):
                await probe.request("POST", path, pod, query={"dryRun": "All"})
                if (await bed.webhook_mode())["seen"] > before:
                    return
            if time.monotonic() > end:
                raise ChaosError("the apiserver does not call the webhook", log=bed.webhook.log)
            await asyncio.sleep(0.1)


async def webhook_answers(bed: "Testbed") -> bool:
    with contextlib.suppress(ChaosError):
        await bed.webhook_mode()
        return True
    return False


async def node_is_ready(bed: "Testbed") -> bool:
    """Ready, and no taint keeps pods away."""
    with contextlib.suppress(*TRANSPORT_ERRORS):
        async with Kube.open(bed.kubeconfig("admin")) as admin:
            reply = await admin.request("GET", f"/api/v1/nodes/{NODE_NAME}")
            return reply.ok and is_ready(reply.body) and not reply.body["spec"].get("taints")
    return False
