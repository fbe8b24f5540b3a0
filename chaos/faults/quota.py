"""The namespaces' quota of pods is used up: 403, and room again whenever a pod has ended.

That there is room again is noticed by the quota controller of the real kube-controller-manager, in its own time: for
the full profile only.
"""

from typing import Any

from chaos.faults.asking import FIRED_S, Asking, answers, shown
from chaos.faults.base import Evidence, Fault, Ground, UndoStep
from chaos.faults.objects import apply, delete_step, remove
from chaos.testbed.kube import Reply

NAME = "rideout-chaos"
PODS = 2
AT_ONCE = 6


class Quota(Fault):
    """No more than two pods at a time in each lane's namespace. Fired = of creates that the suite sends together some
    are refused for it; healed = all are accepted."""

    name = "quota"
    heal_deadline_s = 60.0

    def quotas(self, ground: Ground) -> list[dict[str, Any]]:
        return [
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": NAME, "namespace": namespace},
                "spec": {"hard": {"pods": str(PODS)}},
            }
            for namespace in ground.bed.namespaces.values()
        ]

    def available(self, ground: Ground) -> str | None:
        alive = ground.bed.controller_manager.alive
        return None if alive else "kube-controller-manager does not run, and a quota without its status does nothing"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [delete_step(ground, quota) for quota in self.quotas(ground)]

    async def inject(self, ground: Ground) -> Evidence:
        await apply(ground, *self.quotas(ground))
        return {"pods": PODS}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        return await shown(ground, _used_up, FIRED_S, Asking(at_once=AT_ONCE))

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        return {"removed": await remove(ground, *self.quotas(ground))}

    async def confirm_healed(self, ground: Ground, deadline_s: float) -> Evidence:
        room = await answers(ground, lambda reply: reply.status == 201, deadline_s, Asking(at_once=AT_ONCE, every=True))
        evidence = await super().confirm_healed(ground, deadline_s)
        return {**evidence, "room": {lane: round(at, 6) for lane, (at, _) in room.items()}}


def _used_up(reply: Reply) -> bool:
    return reply.status == 403 and f"exceeded quota: {NAME}, " in str(reply.body.get("message"))
