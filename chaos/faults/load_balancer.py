"""The load balancer answers instead of the apiserver: 502, 503, 504, with a page or with nothing, never with a Status.

Any 5xx without a Status says that the request was not answered by the API (R1): Unavailable. Who sends it is a real
HTTP proxy (`chaos.testbed.loadbalancer`), so these need a scenario that has one.
"""

import asyncio

from chaos.faults.asking import FIRED_S, shown
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, or_restart
from chaos.testbed.kube import Reply
from chaos.testbed.loadbalancer import PAGES


class LoadBalancerFault(Fault):
    """Fired = a create in each lane's namespace is answered with the code, by a body that is no Status."""

    heal_deadline_s = 60.0
    code: int
    page = True
    """Whether the answer is a page; else its body is empty."""

    def available(self, ground: Ground) -> str | None:
        return None if ground.bed.load_balancer else "no load balancer stands before the apiserver in this scenario"

    async def confirm_fired(self, ground: Ground) -> Evidence:
        return await shown(ground, self._answered, FIRED_S)

    def _answered(self, reply: Reply) -> bool:
        said = str(reply.body.get("message", ""))
        is_page = said.startswith("<html>") and str(self.code) in said
        return reply.status == self.code and "kind" not in reply.body and (is_page if self.page else not said)


class UpstreamGone(LoadBalancerFault):
    """The apiserver's address refuses connections: 502 with an empty body."""

    name = "load-balancer-502"
    code, page = 502, False

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [{"do": "enable", "control": ground.bed.proxies.control, "proxy": "api"}]

    async def inject(self, ground: Ground) -> Evidence:
        await asyncio.to_thread(ground.bed.proxies.disable, "api")
        return {"upstream": "refuses connections"}

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        return {"proxy_restarted": await or_restart(ground, lambda: ground.bed.proxies.enable("api"))}


class UpstreamHangs(LoadBalancerFault):
    """Requests to the apiserver are swallowed on their way: 504 and a page, once the load balancer gives up."""

    name = "load-balancer-504"
    code = 504
    toxic = "upstream-hangs"

    def undo(self, ground: Ground) -> list[UndoStep]:
        control = ground.bed.proxies.control
        return [{"do": "remove-toxic", "control": control, "proxy": "api", "toxic": self.toxic}]

    async def inject(self, ground: Ground) -> Evidence:
        await asyncio.to_thread(ground.bed.proxies.add, "api", self.toxic, "timeout", "upstream", {"timeout": 0})
        return {"upstream": "swallows requests"}

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        return {"proxy_restarted": await or_restart(ground, lambda: self._remove_if_there(ground))}

    def _remove_if_there(self, ground: Ground) -> None:
        if any(toxic["name"] == self.toxic for toxic in ground.bed.proxies.toxics("api")):
            ground.bed.proxies.remove("api", self.toxic)


class MaintenancePage(LoadBalancerFault):
    """The load balancer shows a page of its own to every request: 502, 503 or 504."""

    def __init__(self, code: int) -> None:
        assert code in PAGES
        self.code, self.name = code, f"load-balancer-{code}-page"

    def undo(self, ground: Ground) -> list[UndoStep]:
        assert ground.bed.load_balancer is not None
        file = ground.bed.load_balancer.pages / str(self.code)
        return [{"do": "remove-file", "file": str(file), "done": f"the load balancer's page {self.code} is off"}]

    async def inject(self, ground: Ground) -> Evidence:
        assert ground.bed.load_balancer is not None
        (ground.bed.load_balancer.pages / str(self.code)).touch()
        return {"page": self.code}

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        assert ground.bed.load_balancer is not None
        self.healing_since = ground.now()
        (ground.bed.load_balancer.pages / str(self.code)).unlink(missing_ok=True)
        return {"page": None}
