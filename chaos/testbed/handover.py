"""Hand a testbed over from one run to the next: as if it had just been started, in a third of the time.

The servers go on as they are; what a run leaves in them goes: pods, databases, toxics, the webhook's mode, a load
balancer. The node is started anew, because it writes into the next run's records. Whatever cannot be put back into its
first state raises, and then a new testbed is the answer.
"""

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

from chaos.errors import ChaosError
from chaos.testbed import manifests, readiness
from chaos.testbed.bed import Options, Testbed
from chaos.testbed.kube import TRANSPORT_ERRORS, Kube

OWN_PROXIES = ("api", "webhook")
PODS_S = 60.0
SETTLED_S = 60.0


async def hand_over(bed: Testbed, lanes: Sequence[str], options: Options, logs: Path) -> None:
    """Make the testbed ready for a run with these lanes, whose node is as `options` say and whose processes log into
    `logs`. Raises ChaosError."""
    for process in (
        *(bed.etcd, bed.apiserver, bed.controller_manager, bed.scheduler),
        *(bed.postgres, bed.toxiproxy_process, bed.webhook, bed.node),
    ):
        if not process.alive:
            raise ChaosError(f"{process.name} no longer runs", log=process.log)
    if bed.load_balancer is not None:
        await bed.load_balancer.process.terminate()
        shutil.rmtree(bed.load_balancer.pages.parent)
        bed.load_balancer = None
    await bed.webhook_mode({"mode": "admit"})
    await asyncio.to_thread(_without_toxics, bed)
    bed.namespaces = {lane: manifests.namespace_of(lane) for lane in lanes}
    try:
        async with Kube.open(bed.kubeconfig("admin", direct=True)) as admin:
            await _without_pods(admin, list(bed.namespaces.values()))
            await bed.node.terminate()
            for lane in lanes:
                await asyncio.to_thread(bed.database.make_anew, f"rideout_{lane}")
            bed.supervisor.logs = bed.logs = logs
            bed.audit_from = bed.audit_log.stat().st_size
            bed.node = bed.define_node(options)
            bed.node.start()
            port = int(bed.proxies.proxies["webhook"].listen.rpartition(":")[2])
            authority = bed.control_plane.authority.pair.certificate
            await manifests.apply(admin, [manifests.webhook(port, authority, options.webhook_timeout_s)])
            await readiness.settled(bed, admin, SETTLED_S)
    except (*TRANSPORT_ERRORS, psycopg.Error) as error:
        raise ChaosError(f"the testbed cannot be reset: {' '.join(str(error).split()) or error!r}") from error


def _without_toxics(bed: Testbed) -> None:
    for name in [name for name in bed.proxies.proxies if name not in OWN_PROXIES]:
        bed.proxies.leave(name)
    bed.proxies.reset()


async def _without_pods(admin: Kube, namespaces: Sequence[str]) -> None:
    """Delete every pod in them, and wait until none is there: what still ran would write into the next run's ledger."""
    end = time.monotonic() + PODS_S
    for namespace in namespaces:
        await admin.request("DELETE", f"/api/v1/namespaces/{namespace}/pods", query={"gracePeriodSeconds": "0"})
    while True:
        left = [
            f"{namespace}/{pod['metadata']['name']}"
            for namespace in namespaces
            for pod in (await admin.request("GET", f"/api/v1/namespaces/{namespace}/pods")).body.get("items", [])
        ]
        if not left:
            return
        if time.monotonic() > end:
            raise ChaosError(f"{len(left)} pods of the run before are still there after {PODS_S:g} s, first {left[0]}")
        await asyncio.sleep(0.2)
