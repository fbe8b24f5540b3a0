"""Open connections are cut, again and again; each time a new one works at once."""

import asyncio
import contextlib

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep, or_restart
from chaos.faults.toxic import PROXY, address

EVERY_S = 2.0


class ConnectionsCut(Fault):
    """As a load balancer that is reloaded. A create under way loses its answer, committed or not; one that comes after
    it succeeds. Fired = a connection that the suite had open was closed by it, and a new one is taken."""

    name = "connections-cut"
    heal_deadline_s = 60.0

    def __init__(self) -> None:
        self._cutting: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._cuts = 0

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [{"do": "enable", "control": ground.bed.proxies.control, "proxy": PROXY}]

    async def inject(self, ground: Ground) -> Evidence:
        reader, writer = await asyncio.open_connection(*address(ground))
        try:
            self._at = ground.now()
            await self._cut(ground)
            async with asyncio.timeout(3):
                self._was_cut = await reader.read(1) == b""
        except ConnectionResetError:
            self._was_cut = True
        except TimeoutError:
            self._was_cut = False
        finally:
            writer.close()
        self._cutting = asyncio.create_task(self._go_on_cutting(ground))
        return {"every_s": EVERY_S}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        if not self._was_cut:
            raise ChaosError(f"{self.name} did not fire: a connection that the suite had open was not closed")
        try:
            async with asyncio.timeout(3):
                _, writer = await asyncio.open_connection(*address(ground))
            writer.close()
        except (OSError, TimeoutError) as error:
            raise ChaosError(f"{self.name} is more than a cut: no new connection is taken ({error!r})") from error
        return {"at": round(self._at, 6), "cut": True}

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        self._over.set()
        if self._cutting is not None:
            with contextlib.suppress(ChaosError):  # a cut that is under way is seen through, or it would undo the heal
                await self._cutting
        restarted = await or_restart(ground, lambda: ground.bed.proxies.enable(PROXY))
        return {"cuts": self._cuts, "proxy_restarted": restarted}

    async def _go_on_cutting(self, ground: Ground) -> None:
        while not self._over.is_set():
            try:
                await asyncio.wait_for(self._over.wait(), EVERY_S)
            except TimeoutError:
                await self._cut(ground)

    async def _cut(self, ground: Ground) -> None:
        await asyncio.to_thread(ground.bed.proxies.disable, PROXY)
        await asyncio.to_thread(ground.bed.proxies.enable, PROXY)
        self._cuts += 1
