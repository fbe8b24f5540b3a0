"""PostgreSQL is stopped in its "fast" way, which ends every session, and started again to heal."""

from chaos.faults.base import Evidence, Ground, UndoStep
from chaos.faults.control_plane_stop import start_if_down, start_step
from chaos.faults.databases import DatabaseFault


class PostgresRestart(DatabaseFault):
    """Sessions end in the middle of whatever they did; what they had not committed never was."""

    name = "postgres-restart"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [start_step(ground.bed.postgres)]

    async def inject(self, ground: Ground) -> Evidence:
        return {"exit": await ground.bed.postgres.terminate(grace_s=20)}

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        await start_if_down(ground.bed.postgres, deadline_s)
        return {"ready": round(ground.now(), 3)}
