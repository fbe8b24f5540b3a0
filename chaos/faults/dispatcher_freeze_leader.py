"""Freeze the replica that leads (SIGSTOP) past its lease, in every lane at once, and let it go on where it was."""

import asyncio

from chaos import leaders
from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Ground, UndoStep
from chaos.faults.control_plane_stop import continue_step
from chaos.faults.replicas import LEADER_S, PAUSE_S, ReplicaFault, all_of, leaders_of, serves, told


class DispatcherFreezeLeader(ReplicaFault):
    """As a machine that is suspended, or a host that swaps: thawed, it believes for a moment that it still leads, and
    writes what it had decided. Fired = a client gets no answer from it, and its lease has run out on the record."""

    name = "dispatcher-freeze-leader"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [continue_step(process) for lane in ground.lanes.values() for process in lane.processes]

    async def inject(self, ground: Ground) -> Evidence:
        self.frozen = await leaders_of(ground)
        self.at = ground.now()
        for leader in self.frozen.values():
            leader.process.pause()
        return {"at": round(self.at, 6), "led": told(self.frozen)}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        for leader in self.frozen.values():
            if (met := await serves(leader.url)) != "silent":
                raise ChaosError(f"{self.name} did not fire: {leader.name} {met}")
        past = await all_of(self._past_its_lease(ground, lane) for lane in self.frozen)
        return {"at": round(self.at, 6), "past_its_lease": dict(zip(self.frozen, past, strict=True))}

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        for lane in ground.lanes.values():
            for process in lane.processes:
                process.resume()
        return await super().heal(ground, deadline_s)

    async def _past_its_lease(self, ground: Ground, lane: str) -> float:
        """When another led, or nobody did."""
        end, url = ground.now() + LEADER_S, ground.bed.database_url(lane, driver="postgresql")
        while True:
            seen = await asyncio.to_thread(leaders.leader, url)
            if seen is None or not seen.leads or seen.term != self.frozen[lane].term:
                return round(ground.now(), 3)
            if ground.now() > end:
                raise ChaosError(f"{self.name} did not fire: {self.frozen[lane].name} renews its lease")
            await asyncio.sleep(PAUSE_S)
