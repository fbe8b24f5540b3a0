"""Every connection between the dispatchers and PostgreSQL is cut, and no new one taken; the server runs on."""

import asyncio

import psycopg

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Ground, UndoStep, or_restart
from chaos.faults.databases import DatabaseFault, way_of
from chaos.leaders import connect
from chaos.testbed.toxics import DATABASE_PROXY


class PostgresCut(DatabaseFault):
    """A write that was under way is committed or not, and nobody is told. Fired = a session that the suite had open on
    the same way is cut off, and it cannot have a new one."""

    name = "postgres-cut"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [{"do": "enable", "control": ground.bed.proxies.control, "proxy": DATABASE_PROXY}]

    async def inject(self, ground: Ground) -> Evidence:
        open_before = await asyncio.to_thread(connect, way_of(next(iter(ground.lanes.values()))))
        with open_before:
            await asyncio.to_thread(ground.bed.proxies.disable, DATABASE_PROXY)
            self.was_cut = await asyncio.to_thread(_is_cut, open_before)
        return {"proxy": DATABASE_PROXY}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        if not self.was_cut:
            raise ChaosError(f"{self.name} did not fire: a session that the suite had open goes on")
        return await super().confirm_fired(ground)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        restarted = await or_restart(ground, lambda: ground.bed.proxies.enable(DATABASE_PROXY))
        return {"proxy": DATABASE_PROXY, "proxy_restarted": restarted}


def _is_cut(connection: psycopg.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return True
    return False
