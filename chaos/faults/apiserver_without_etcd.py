"""The apiserver is restarted while etcd is down: it runs, its port opens or not, and nothing can be served."""

import asyncio

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, refused
from chaos.faults.control_plane_stop import start_if_down, start_step


class ApiserverWithoutEtcd(Fault):
    """etcd is killed, then the apiserver, which is started again at once. etcd returns to heal. An apiserver that gave
    up meanwhile is started once more, as a kubelet would."""

    name = "apiserver-without-etcd"

    def available(self, ground: Ground) -> str | None:
        down = [process.name for process in (ground.bed.etcd, ground.bed.apiserver) if not process.alive]
        return f"{', '.join(down)} does not run" if down else None

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [start_step(ground.bed.etcd), start_step(ground.bed.apiserver)]

    async def inject(self, ground: Ground) -> Evidence:
        for process in (ground.bed.etcd, ground.bed.apiserver):
            process.kill()
            await process.wait_exit(10)
        ground.bed.apiserver.start()
        return {"restarted": round(ground.now(), 3)}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        if ground.bed.etcd.alive:
            raise ChaosError(f"{self.name} did not fire: etcd still runs")
        return await refused(ground, ground.now(), 20)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        end = self.healing_since + deadline_s
        await start_if_down(ground.bed.etcd, deadline_s)
        starts = ground.bed.apiserver.starts
        while True:  # one that was started without etcd ends by itself, sooner or later
            try:
                await start_if_down(ground.bed.apiserver, end - ground.now())
                return {"started": round(ground.now(), 3), "apiserver_starts": ground.bed.apiserver.starts - starts}
            except ChaosError:
                if ground.bed.apiserver.alive or ground.now() > end:
                    raise
                await asyncio.sleep(0.2)
