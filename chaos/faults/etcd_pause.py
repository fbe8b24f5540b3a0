"""Stop etcd in its tracks (SIGSTOP): its connections stay open, and nothing is written or read."""

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, refused
from chaos.faults.control_plane_stop import continue_step


class EtcdPause(Fault):
    """What a disk that hangs, or a lost quorum, looks like from above: creates hang until somebody's deadline."""

    name = "etcd-pause"

    def available(self, ground: Ground) -> str | None:
        return None if ground.bed.etcd.alive else "etcd does not run"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [continue_step(ground.bed.etcd)]

    async def inject(self, ground: Ground) -> Evidence:
        ground.bed.etcd.pause()
        return {"pid": ground.bed.etcd.pid}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        if not ground.bed.etcd.alive:
            raise ChaosError(f"{self.name} did not fire: etcd has ended", log=ground.bed.etcd.log)
        return await refused(ground, ground.now(), 20)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        ground.bed.etcd.resume()
        await ground.bed.etcd.wait_ready(deadline_s)
        return {"ready": round(ground.now(), 3)}
