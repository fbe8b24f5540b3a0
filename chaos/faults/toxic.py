"""What faults of the connections share: one toxic on the proxy between every client of the API and the apiserver.

The lanes and the probe go through that proxy; the node and the control plane's own clients do not. A toxic works on
connections that are open already as well as on new ones.
"""

import asyncio
from typing import Any, ClassVar, Literal

from chaos.faults.base import Evidence, Fault, Ground, UndoStep, or_restart, refused

PROXY = "api"


class ToxicFault(Fault):
    """One toxic for as long as it is held. Fired = the probe's creates, asked for from now on, are not served."""

    heal_deadline_s = 60.0
    kind: ClassVar[str]
    stream: ClassVar[Literal["upstream", "downstream"]]
    """upstream: what clients send. downstream: what they are answered."""
    attributes: ClassVar[dict[str, Any]]

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [{"do": "remove-toxic", "control": ground.bed.proxies.control, "proxy": PROXY, "toxic": self.name}]

    async def inject(self, ground: Ground) -> Evidence:
        await asyncio.to_thread(ground.bed.proxies.add, PROXY, self.name, self.kind, self.stream, self.attributes)
        return {"toxic": self.kind, "stream": self.stream, **self.attributes}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        return await refused(ground, ground.now(), 20)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        return {"proxy_restarted": await or_restart(ground, lambda: self._remove_if_there(ground))}

    def _remove_if_there(self, ground: Ground) -> None:
        if any(toxic["name"] == self.name for toxic in ground.bed.proxies.toxics(PROXY)):
            ground.bed.proxies.remove(PROXY, self.name)


def address(ground: Ground) -> tuple[str, int]:
    """Where clients of the API connect to."""
    host, _, port = ground.bed.proxies.proxies[PROXY].listen.rpartition(":")
    return host, int(port)
