"""SIGKILL etcd, the one member there is: the apiserver loses its store and has to find it again."""

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, refused
from chaos.faults.control_plane_stop import start_if_down, start_step


class EtcdKill(Fault):
    """Creates in flight fail with a 500 that has no reason, later ones hang. After a long absence the apiserver redials
    with a backoff of up to 2 min, so the API is back long after etcd is."""

    name = "etcd-kill"

    def available(self, ground: Ground) -> str | None:
        return None if ground.bed.etcd.alive else "etcd does not run"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [start_step(ground.bed.etcd)]

    async def inject(self, ground: Ground) -> Evidence:
        ground.bed.etcd.kill()
        return {"exit": await ground.bed.etcd.wait_exit(10)}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        if ground.bed.etcd.alive:
            raise ChaosError(f"{self.name} did not fire: etcd still runs")
        return await refused(ground, ground.now(), 20)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        await start_if_down(ground.bed.etcd, deadline_s)
        return {"ready": round(ground.now(), 3)}
