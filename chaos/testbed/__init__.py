"""The testbed: a real control plane without Docker and without root, for as long as a run lasts.

Reading order: `bed` (what stands around a dispatcher, and in which order it starts), `tools` (the servers, built from
pinned Go modules), `controlplane.local` (their flags), `processes` and `reaper` (why nothing is left running, however
the suite dies), `readiness` (when it counts as up), `ports`, `certs`, `kube`, `manifests`, `postgres`, `toxics`,
`webhook`, `loadbalancer`, `node` (plays the kubelet), `statedir`, `hold` (`make up` and `make down`).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chaos.testbed.bed import Testbed

__all__ = ["Testbed"]


def __getattr__(name: str) -> Any:
    """`Testbed` is imported when it is asked for: the node and the webhook are in this package too, and start without
    the clients of everything else."""
    if name == "Testbed":
        from chaos.testbed.bed import Testbed

        return Testbed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
