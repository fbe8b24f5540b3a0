"""The fail-closed webhook cannot be reached: nothing listens where the apiserver calls it."""

import asyncio

from chaos.faults.asking import FIRED_S, shown
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, or_restart
from chaos.faults.webhook import call_failed


class WebhookDown(Fault):
    """The webhook's proxy is off: its connections are cut and new ones refused, as when its last pod is gone."""

    name = "webhook-down"
    heal_deadline_s = 60.0

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [{"do": "enable", "control": ground.bed.proxies.control, "proxy": "webhook"}]

    async def inject(self, ground: Ground) -> Evidence:
        await asyncio.to_thread(ground.bed.proxies.disable, "webhook")
        return {"proxy": "webhook"}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        return await shown(ground, lambda reply: call_failed(reply, "connection refused"), FIRED_S)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        restarted = await or_restart(ground, lambda: ground.bed.proxies.enable("webhook"))
        return {"proxy": "webhook", "proxy_restarted": restarted}
