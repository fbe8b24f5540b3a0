"""Every dispatcher is restarted in order, one replica of a lane after the other, as a new release is rolled out."""

from typing import TYPE_CHECKING

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Ground
from chaos.faults.replicas import ReplicaFault, all_of, serves

if TYPE_CHECKING:
    from chaos.lanes import Lane

STOP_S = 25.0
START_S = 60.0


class DispatcherRollingRestart(ReplicaFault):
    """SIGTERM, wait for its end (R25), start, wait until it serves; then the next. Fired = each ended by itself with
    code 0, a client found nobody at its address then, and another process is there now."""

    name = "dispatcher-rolling-restart"

    async def inject(self, ground: Ground) -> Evidence:
        self.at, self.ended, self.met = ground.now(), dict[str, int | None](), dict[str, str]()
        self.before = {p.name: p.starts for lane in ground.lanes.values() for p in lane.processes}
        await all_of(self._roll(lane) for lane in ground.lanes.values())
        return {"at": round(self.at, 6), "exit": self.ended}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        for lane in ground.lanes.values():
            for process in lane.processes:
                if process.starts == self.before[process.name]:
                    raise ChaosError(f"{self.name} did not fire: {process.name} was not started again")
                if self.ended[process.name] != 0:
                    raise ChaosError(f"{self.name}: {process.name} ended with {self.ended[process.name]}, not in order")
                if self.met[process.name] != "refuses":
                    raise ChaosError(f"{self.name} did not fire: {process.name} {self.met[process.name]}, stopped")
        return {"at": round(self.at, 6), "exit": self.ended}

    async def _roll(self, lane: "Lane") -> None:
        for process, url in zip(lane.processes, lane.urls, strict=True):
            self.ended[process.name] = await process.terminate(STOP_S)
            self.met[process.name] = await serves(url)
            if not process.alive:
                process.start()
            await process.wait_ready(START_S)
