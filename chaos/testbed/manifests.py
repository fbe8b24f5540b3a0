"""Applies the project's own `k8s/` manifests to a testbed: the same files an operator applies, once a lane.

`k8s/*.yaml` is production's (`kubectl apply -f k8s/`, in the order of the names). `k8s/testbed/` adds what only a
testbed may have: the probe's rights, and a fail-closed webhook that is meant to break. All are written for the
namespace `tasks`; for a lane it is renamed to `tasks-<lane>`. Server-side apply, so that applying twice is no error.
"""

import base64
import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from chaos.errors import ChaosError
from chaos.testbed.kube import APPLY, Json, Kube

DIRECTORY = Path(__file__).parents[2] / "k8s"
WRITTEN_FOR = "tasks"
PER_LANE = ("00-tasks-namespace.yaml", "dispatcher-rbac.yaml", "testbed/probe-rbac.yaml")

# kind -> (API prefix, plural); namespaced where the document names a namespace.
_RESOURCES = {
    "Namespace": ("/api/v1", "namespaces"),
    "LimitRange": ("/api/v1", "limitranges"),
    "ResourceQuota": ("/api/v1", "resourcequotas"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "PriorityLevelConfiguration": ("/apis/flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations"),
    "FlowSchema": ("/apis/flowcontrol.apiserver.k8s.io/v1", "flowschemas"),
    "ValidatingWebhookConfiguration": ("/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
}


def namespace_of(lane: str) -> str:
    return f"{WRITTEN_FOR}-{lane}"


def documents(name: str) -> list[Json]:
    """The objects in a file of k8s/."""
    return [document for document in yaml.safe_load_all((DIRECTORY / name).read_text()) if document]


def for_lane(document: Json, lane: str) -> Json:
    """The same object in the lane's namespace."""
    made = copy.deepcopy(document)
    meta = made["metadata"]
    if meta.get("namespace") == WRITTEN_FOR:
        meta["namespace"] = namespace_of(lane)
    if made["kind"] == "Namespace" and meta["name"] == WRITTEN_FOR:
        meta["name"] = namespace_of(lane)
        meta["labels"]["rideout.dev/lane"] = lane
    return made


def webhook(port: int, authority: Path, timeout_s: int) -> Json:
    """The webhook configuration for a webhook at 127.0.0.1:port; `timeout_s` is a whole number from 1 to 30."""
    (made,) = documents("testbed/webhook.yaml")
    hook = made["webhooks"][0]
    hook["clientConfig"] = {
        "url": f"https://127.0.0.1:{port}/validate",
        "caBundle": base64.b64encode(authority.read_bytes()).decode(),
    }
    hook["timeoutSeconds"] = timeout_s
    return made


def path_of(document: Json) -> str:
    """Where the object lives in the API. Raises ChaosError for a kind the testbed does not know."""
    if document["kind"] not in _RESOURCES:
        raise ChaosError(f"{document['kind']} is no kind that the testbed applies: add it to {__name__}")
    prefix, plural = _RESOURCES[document["kind"]]
    namespace = document["metadata"].get("namespace")
    return f"{prefix}{f'/namespaces/{namespace}' if namespace else ''}/{plural}/{document['metadata']['name']}"


async def apply(kube: Kube, made: Iterable[dict[str, Any]]) -> None:
    """Server-side apply, in order. Raises ChaosError with the object's name and the server's words."""
    for document in made:
        path = path_of(document)
        reply = await kube.request(
            "PATCH",
            path,
            document,
            query={"fieldManager": "rideout", "force": "true"},
            content_type=APPLY,
        )
        if not reply.ok:
            raise ChaosError(f"the apiserver refused {path}: {reply.message}")
