"""Objects in the API that are a fault while they exist: put there and taken away by the suite's admin, directly."""

from typing import Any

from chaos.errors import ChaosError
from chaos.faults.base import Ground, UndoStep
from chaos.testbed import manifests
from chaos.testbed.kube import Kube


async def apply(ground: Ground, *documents: dict[str, Any]) -> None:
    """Server-side apply, in order. Raises ChaosError with the object's name and the server's words."""
    async with Kube.open(ground.bed.kubeconfig("admin")) as admin:
        await manifests.apply(admin, documents)


async def remove(ground: Ground, *documents: dict[str, Any]) -> list[str]:
    """Delete what is there; returns the paths of what was. Raises ChaosError where one could not be deleted."""
    removed = []
    async with Kube.open(ground.bed.kubeconfig("admin")) as admin:
        for document in documents:
            path = manifests.path_of(document)
            reply = await admin.request("DELETE", path)
            if reply.ok:
                removed.append(path)
            elif reply.status != 404:
                raise ChaosError(f"{path} could not be deleted: {reply.message}", log=ground.bed.apiserver.log)
    return removed


def delete_step(ground: Ground, document: dict[str, Any]) -> UndoStep:
    """How another process would delete it, by the same certificate."""
    plane, path = ground.bed.control_plane, manifests.path_of(document)
    admin = plane.clients["admin"]
    return {
        "do": "call",
        "method": "DELETE",
        "url": plane.url + path,
        "body": None,
        "tls": {
            "authority": str(plane.authority.pair.certificate),
            "certificate": str(admin.certificate),
            "key": str(admin.key),
        },
        "done": f"{path} is deleted",
    }
