"""Nothing passes between the agents and any dispatcher, in either direction; both go on as if the other were silent."""

import asyncio

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, or_restart
from chaos.faults.replicas import serves
from chaos.testbed.toxics import Proxy

STREAMS = ("upstream", "downstream")


class Partition(Fault):
    """A black hole on each way from the agents to a replica. The API, the database and the suite are not behind it.
    Fired = on the agents' way a client of the suite gets no answer from any replica, and on its own it does."""

    name = "partition"
    heal_deadline_s = 60.0

    def available(self, ground: Ground) -> str | None:
        return None if ways(ground) else "no way from the agents to a dispatcher goes through a proxy"

    def undo(self, ground: Ground) -> list[UndoStep]:
        control = ground.bed.proxies.control
        return [
            {"do": "remove-toxic", "control": control, "proxy": way.name, "toxic": f"{self.name}-{stream}"}
            for way in ways(ground)
            for stream in STREAMS
        ]

    async def inject(self, ground: Ground) -> Evidence:
        self.at = ground.now()
        for way in ways(ground):
            for stream in STREAMS:
                toxic = f"{self.name}-{stream}"
                await asyncio.to_thread(ground.bed.proxies.add, way.name, toxic, "timeout", stream, {"timeout": 0})
        return {"at": round(self.at, 6), "ways": [way.name for way in ways(ground)]}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        at = ground.now()
        on_their_way = await asyncio.gather(*(serves(f"http://{way.listen}") for way in ways(ground)))
        on_ours = await asyncio.gather(*(serves(f"http://{way.upstream}") for way in ways(ground)))
        for way, theirs, ours in zip(ways(ground), on_their_way, on_ours, strict=True):
            if theirs != "silent":
                raise ChaosError(f"{self.name} did not fire: on the agents' way {way.name} a replica {theirs}")
            if ours != "serves":
                raise ChaosError(f"{self.name} is more than a partition: behind {way.name} the replica {ours}")
        return {"at": round(at, 6), "silent": [way.name for way in ways(ground)]}

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        return {"proxy_restarted": await or_restart(ground, lambda: self._remove_if_there(ground))}

    async def confirm_healed(self, ground: Ground, deadline_s: float) -> Evidence:
        end, lanes = ground.now() + deadline_s, dict[str, float]()
        for name, lane in ground.lanes.items():
            for way in lane.agents:
                while (met := await serves(f"http://{way.listen}")) != "serves":
                    if ground.now() > end:
                        raise ChaosError(f"on the agents' way {way.name} a replica {met} after {deadline_s:g} s")
                    await asyncio.sleep(0.1)
            lanes[name] = round(ground.now(), 6)
        return {"at": max(lanes.values()), "lanes": lanes}

    def _remove_if_there(self, ground: Ground) -> None:
        for way in ways(ground):
            for toxic in ground.bed.proxies.toxics(way.name):
                ground.bed.proxies.remove(way.name, toxic["name"])


def ways(ground: Ground) -> list[Proxy]:
    return [way for lane in ground.lanes.values() for way in lane.agents]
