"""SIGKILL the apiserver: no drain, no goodbye; creates in flight lose their answers."""

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, refused
from chaos.faults.control_plane_stop import start_if_down, start_step


class ApiserverKill(Fault):
    """The apiserver's process dies at once and is started again to heal."""

    name = "apiserver-kill"

    def available(self, ground: Ground) -> str | None:
        return None if ground.bed.apiserver.alive else "kube-apiserver does not run"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [start_step(ground.bed.apiserver)]

    async def inject(self, ground: Ground) -> Evidence:
        self.injecting_since = ground.now()
        ground.bed.apiserver.kill()
        return {"exit": await ground.bed.apiserver.wait_exit(10)}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        if ground.bed.apiserver.alive:
            raise ChaosError(f"{self.name} did not fire: kube-apiserver still runs")
        return await refused(ground, self.injecting_since, 20)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        await start_if_down(ground.bed.apiserver, deadline_s)
        return {"started": round(ground.now(), 3)}
