"""A dispatcher dies (SIGKILL) at a named point of its main path, in every lane at once.

The points are an interface of the dispatcher: with RIDEOUT_SEAM=<name>:kill in its environment it kills itself the
first time it gets there. So each lane's dispatchers are stopped in order, one is started armed, and due tasks lead it
there.
"""

import asyncio
from typing import TYPE_CHECKING

from chaos import leaders
from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Ground
from chaos.faults.replicas import ReplicaFault, all_of, serves

if TYPE_CHECKING:
    from chaos.lanes import Lane

SEAMS = ("after-claim", "after-create", "before-settle", "in-settle", "in-re-offer")
KILLED = -9
REACHED_S = 60.0
STOP_S = 25.0


class DispatcherKillAtSeam(ReplicaFault):
    """The first replica of each lane dies at the seam, and the others are started after it. Fired = it ended by a
    SIGKILL that the suite did not send, nobody is at its address, and rows that it had claimed are left behind."""

    def __init__(self, seam: str) -> None:
        self.seam = seam
        self.name = f"dispatcher-kill-{seam}"
        self.left: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.at: dict[str, float] = {}

    async def inject(self, ground: Ground) -> Evidence:
        await all_of(self._lead_to_the_seam(ground, lane) for lane in ground.lanes.values())
        return {"seam": self.seam, "exit": self.ended, "lanes": self.at}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        for name, lane in ground.lanes.items():
            if self.ended[name] != KILLED:
                raise ChaosError(f"{self.name} did not fire: {name}-1 ended with {self.ended[name]}")
            if (met := await serves(lane.urls[0])) != "refuses":
                raise ChaosError(f"{self.name} did not fire: {name}-1 {met}")
            if not self.left[name]:
                raise ChaosError(f"{self.name} did not fire: {name}-1 left no claim behind")
        return {"at": min(self.at.values()), "lanes": self.at, "claims_left": self.left}

    async def _lead_to_the_seam(self, ground: Ground, lane: "Lane") -> None:
        first, *others = lane.processes
        await all_of(process.terminate(STOP_S) for process in lane.processes)
        usual = first.env
        first.env = {**usual, "RIDEOUT_SEAM": f"{self.seam}:kill"}
        try:
            first.start()
            self.ended[lane.name] = await first.wait_exit(REACHED_S)
        finally:
            first.env = usual
        self.at[lane.name] = round(ground.now(), 6)
        url = ground.bed.database_url(lane.name, driver="postgresql")
        self.left[lane.name] = await asyncio.to_thread(leaders.claimed_by, url, f"{lane.name}-1")
        for process in others:
            process.start()
