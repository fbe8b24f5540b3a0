"""Stop the whole control plane in order, as an upgrade does, and start it one by one."""

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, refused
from chaos.testbed.processes import ManagedProcess


class ControlPlaneStop(Fault):
    """The apiserver drains and stops first and etcd last; they return in the opposite order of need."""

    name = "control-plane-stop"

    def stop_order(self, ground: Ground) -> list[ManagedProcess]:
        bed = ground.bed
        return [bed.apiserver, bed.controller_manager, bed.scheduler, bed.etcd]

    def start_order(self, ground: Ground) -> list[ManagedProcess]:
        bed = ground.bed
        return [bed.etcd, bed.apiserver, bed.controller_manager, bed.scheduler]

    def available(self, ground: Ground) -> str | None:
        down = [process.name for process in self.stop_order(ground) if not process.alive]
        return f"{', '.join(down)} does not run" if down else None

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [start_step(process) for process in self.start_order(ground)]

    async def inject(self, ground: Ground) -> Evidence:
        stopped = {}
        for process in self.stop_order(ground):
            code = await process.terminate(grace_s=20)
            stopped[process.name] = {"at": round(ground.now(), 3), "exit": code}
        return {"stopped": stopped}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        running = [process.name for process in self.stop_order(ground) if process.alive]
        if running:
            raise ChaosError(f"{self.name} did not fire: {', '.join(running)} still runs")
        # Creates that were asked for after all are down: what a draining apiserver answers (429) is no outage yet.
        return {**await refused(ground, ground.now(), 20), "gone": [p.name for p in self.stop_order(ground)]}

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        started = {}
        for process in self.start_order(ground):
            await start_if_down(process, deadline_s - (ground.now() - self.healing_since))
            started[process.name] = round(ground.now(), 3)
        return {"started": started}


async def start_if_down(process: ManagedProcess, deadline_s: float) -> None:
    """Start a process unless it runs, and wait until it is ready. Raises ChaosError."""
    if not process.alive:
        process.start()
    await process.wait_ready(max(deadline_s, 1.0))


def start_step(process: ManagedProcess) -> UndoStep:
    """How another process would start it again."""
    return {
        "do": "start",
        "process": process.name,
        "argv": process.argv,
        "env": process.env,
        "cwd": str(process.cwd),
        "log": str(process.log),
        "pid_file": str(process.pid_file),
    }


def continue_step(process: ManagedProcess) -> UndoStep:
    """How another process would let it go on."""
    return {"do": "continue", "process": process.name, "pid_file": str(process.pid_file)}
