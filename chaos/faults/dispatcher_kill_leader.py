"""SIGKILL the replica that leads, in every lane at once: no drain, no resignation, claims left behind."""

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Ground
from chaos.faults.replicas import ReplicaFault, leaders_of, serves, told


class DispatcherKillLeader(ReplicaFault):
    """Where there is another replica it has to wait for the dead one's lease; where there is none, nobody ticks until
    the heal starts it again. Fired = each leader's process is gone, and a client finds nobody at its address."""

    name = "dispatcher-kill-leader"

    async def inject(self, ground: Ground) -> Evidence:
        self.killed = await leaders_of(ground)
        self.at = ground.now()
        for leader in self.killed.values():
            leader.process.kill()
        exits = {leader.name: await leader.process.wait_exit(10) for leader in self.killed.values()}
        return {"at": round(self.at, 6), "led": told(self.killed), "exit": exits}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        for leader in self.killed.values():
            if leader.process.alive:
                raise ChaosError(f"{self.name} did not fire: {leader.name} still runs")
            if (met := await serves(leader.url)) != "refuses":
                raise ChaosError(f"{self.name} did not fire: {leader.name} {met}")
        return {"at": round(self.at, 6), "gone": [leader.name for leader in self.killed.values()]}
