"""Switch the proxy off: every connection of the lanes and the probe is cut, and new ones are refused."""

import asyncio

from chaos.faults.base import Evidence, Fault, Ground, UndoStep, or_restart, refused


class ProxyOff(Fault):
    """The API itself stays well and the node still reaches it; only the clients are cut off."""

    name = "proxy-off"
    heal_deadline_s = 30.0

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [{"do": "enable", "control": ground.bed.proxies.control, "proxy": "api"}]

    async def inject(self, ground: Ground) -> Evidence:
        self.injecting_since = ground.now()
        await asyncio.to_thread(ground.bed.proxies.disable, "api")
        return {"proxy": "api"}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        return await refused(ground, self.injecting_since, 10)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        restarted = await or_restart(ground, lambda: ground.bed.proxies.enable("api"))
        return {"proxy": "api", "proxy_restarted": restarted}
