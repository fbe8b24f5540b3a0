"""The apiserver crashes soon after each of its starts, again and again: up for a moment, down for some seconds."""

import asyncio
import contextlib

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, refused
from chaos.faults.control_plane_stop import start_if_down, start_step

UP_S = 1.0
"""How long it serves before the next crash: creates get through, and creates die half-way."""
FIRED_S = 60.0


class ApiserverCrashLoop(Fault):
    """SIGKILL, start, ready, a second of service, SIGKILL … for as long as it is held. Fired = it crashed, came back
    and crashed again, and the probe was refused."""

    name = "apiserver-crash-loop"

    def __init__(self) -> None:
        self.crashes: list[float] = []
        self._looping: asyncio.Task[None] | None = None

    def available(self, ground: Ground) -> str | None:
        return None if ground.bed.apiserver.alive else "kube-apiserver does not run"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [start_step(ground.bed.apiserver)]

    async def inject(self, ground: Ground) -> Evidence:
        self.injecting_since = ground.now()
        self._looping = asyncio.create_task(self._loop(ground))
        return {"up_s": UP_S}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        seen = await refused(ground, self.injecting_since, 20)
        end = ground.now() + FIRED_S
        while len(self.crashes) < 2:
            if ground.now() > end or (self._looping is not None and self._looping.done()):
                raise ChaosError(f"{self.name} did not fire: {len(self.crashes)} crashes within {FIRED_S:g} s")
            await asyncio.sleep(0.05)
        return {**seen, "crashes": [round(at, 3) for at in self.crashes]}

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        if self._looping is not None:
            self._looping.cancel()
            with contextlib.suppress(asyncio.CancelledError, ChaosError):
                await self._looping
        await start_if_down(ground.bed.apiserver, deadline_s)
        return {"crashes": [round(at, 3) for at in self.crashes]}

    async def _loop(self, ground: Ground) -> None:
        server = ground.bed.apiserver
        while True:
            server.kill()
            await server.wait_exit(10)
            self.crashes.append(ground.now())
            server.start()
            await server.wait_ready(FIRED_S)
            await asyncio.sleep(UP_S)
