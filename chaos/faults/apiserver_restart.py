"""Restart the apiserver as a node's reboot or a new flag does: it drains, stops, and is started again at once."""

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, refused
from chaos.faults.control_plane_stop import start_if_down, start_step


class ApiserverRestart(Fault):
    """SIGTERM: it serves for 3 s more, answers 429 while it drains, and ends by itself; then it is started."""

    name = "apiserver-restart"

    def available(self, ground: Ground) -> str | None:
        return None if ground.bed.apiserver.alive else "kube-apiserver does not run"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [start_step(ground.bed.apiserver)]

    async def inject(self, ground: Ground) -> Evidence:
        self.exit_code = await ground.bed.apiserver.terminate(grace_s=20)
        self.stopped_at = ground.now()
        if not ground.bed.apiserver.alive:
            ground.bed.apiserver.start()
        return {"exit": self.exit_code, "at": round(self.stopped_at, 3)}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        if self.exit_code != 0:
            ended = "still runs" if self.exit_code is None else f"ended with {self.exit_code}"
            raise ChaosError(f"{self.name} did not fire: kube-apiserver was told to stop, and it {ended}")
        return await refused(ground, self.stopped_at, 10)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        await start_if_down(ground.bed.apiserver, deadline_s)
        return {"started": round(ground.now(), 3)}
