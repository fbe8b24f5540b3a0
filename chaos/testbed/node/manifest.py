"""Reads what the node needs out of a Pod object: environment, command, deadlines, identity. Pure."""

import re
from dataclasses import dataclass, field
from typing import Any

from chaos.testbed.kube import Json

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.\-][A-Za-z0-9_.\-]*)\)")
_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['([^']+)'\]$")
DEFAULT_GRACE_S = 30


class BadPod(Exception):
    """The container cannot be made from this pod; the message becomes its status (CreateContainerConfigError)."""


@dataclass(frozen=True)
class PodSpec:
    """One pod, as far as the node cares."""

    uid: str
    name: str
    namespace: str
    container: str
    argv: list[str]
    env: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)
    active_deadline_s: float | None = None

    @property
    def lane(self) -> str:
        """The lane by the namespace's name, `tasks-<lane>`."""
        return self.namespace.removeprefix("tasks-")

    def identity(self) -> dict[str, Any]:
        """What a ledger line says of the attempt; row and epoch are None for a pod that is not an attempt's."""
        return {
            "lane": self.lane,
            "row": _number(self.labels.get("rideout.dev/row")),
            "epoch": _number(self.labels.get("rideout.dev/epoch")),
            "pod_uid": self.uid,
        }


def uid_of(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def grace_of(pod: Json) -> float:
    """Seconds between SIGTERM and SIGKILL: what the deletion asked for, else what the spec says."""
    grace = pod["metadata"].get("deletionGracePeriodSeconds")
    if grace is None:
        grace = pod["spec"].get("terminationGracePeriodSeconds")
    return float(DEFAULT_GRACE_S if grace is None else grace)


def read(pod: Json, node: str) -> PodSpec:
    """Raises BadPod for what the node cannot provide."""
    container = pod["spec"]["containers"][0]
    env = environment(pod, container, node)
    words = [*container.get("command", []), *container.get("args", [])]
    if not container.get("command"):
        raise BadPod("no command: this node has no images and so no entry points")
    meta = pod["metadata"]
    return PodSpec(
        uid=uid_of(pod),
        name=meta["name"],
        namespace=meta["namespace"],
        container=container["name"],
        argv=[expand(word, env) for word in words],
        env=env,
        labels=meta.get("labels") or {},
        active_deadline_s=pod["spec"].get("activeDeadlineSeconds"),
    )


def environment(pod: Json, container: Json, node: str) -> dict[str, str]:
    """The container's variables, in order, with fieldRefs resolved and $(NAME) expanded as a kubelet does."""
    if container.get("envFrom"):
        raise BadPod("envFrom is not provided on this node")
    env: dict[str, str] = {}
    for variable in container.get("env") or []:
        source = variable.get("valueFrom")
        if not source:
            env[variable["name"]] = expand(variable.get("value") or "", env)
        elif "fieldRef" in source:
            env[variable["name"]] = downward(pod, source["fieldRef"]["fieldPath"], node)
        else:
            raise BadPod(f"{variable['name']}: only value and fieldRef are provided on this node")
    return env


def downward(pod: Json, path: str, node: str) -> str:
    """A fieldRef of the downward API (k8s.io/kubernetes/pkg/fieldpath)."""
    meta = pod["metadata"]
    if found := _SUBSCRIPT.match(path):
        return str((meta.get(found[1]) or {}).get(found[2], ""))
    simple = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": node,
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        "status.hostIP": "127.0.0.1",
        "status.podIP": "127.0.0.1",
    }
    if path not in simple:
        raise BadPod(f"fieldRef {path} is not provided on this node")
    return str(simple[path])


def expand(text: str, env: dict[str, str]) -> str:
    """$(NAME) becomes the variable's value, $$ a dollar; an unknown name stays as it is (Kubernetes' own rule)."""
    return _REFERENCE.sub(lambda hit: "$" if hit[0] == "$$" else env.get(hit[1], hit[0]), text)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
