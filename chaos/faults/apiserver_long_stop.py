"""The apiserver is stopped in order and stays away for long: a maintenance that nobody finished."""

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, refused
from chaos.faults.control_plane_stop import start_if_down, start_step


class ApiserverLongStop(Fault):
    """Only the apiserver: etcd, the controllers and the node wait for it."""

    name = "apiserver-long-stop"

    def available(self, ground: Ground) -> str | None:
        return None if ground.bed.apiserver.alive else "kube-apiserver does not run"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [start_step(ground.bed.apiserver)]

    async def inject(self, ground: Ground) -> Evidence:
        return {"exit": await ground.bed.apiserver.terminate(grace_s=20)}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        if ground.bed.apiserver.alive:
            raise ChaosError(f"{self.name} did not fire: kube-apiserver still runs")
        return await refused(ground, ground.now(), 20)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        await start_if_down(ground.bed.apiserver, deadline_s)
        return {"started": round(ground.now(), 3)}
