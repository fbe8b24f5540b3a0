"""Every agent that runs now is killed, and its user code with it, as when a machine runs out of memory."""

import asyncio
import signal
import time

from chaos import ledger
from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep
from chaos.ledger import Execution

KILLED = 128 + signal.SIGKILL
FIRED_S = 15.0


class AgentKill(Fault):
    """The node is told to (SIGUSR1). Fired = in each lane user code that had begun was ended by it, by the ledger.
    There is nothing to heal: the pods are over, and their rows' leases run out."""

    name = "agent-kill"
    heal_deadline_s = 30.0

    def available(self, ground: Ground) -> str | None:
        return None if ground.bed.node.alive else "the node does not run"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return []

    async def inject(self, ground: Ground) -> Evidence:
        self.at = ground.now()
        ground.bed.node.signal(signal.SIGUSR1)
        return {"at": round(self.at, 6)}

    async def confirm_fired(self, ground: Ground) -> Evidence:
        end = ground.now() + FIRED_S
        while True:
            killed = dict.fromkeys(ground.bed.namespaces, 0)
            for one in self._killed(ground):
                killed[one.lane] += 1
            if all(killed.values()):
                return {"at": round(self.at, 6), "killed": killed}
            if ground.now() > end:
                spared = ", ".join(lane for lane, count in killed.items() if not count)
                raise ChaosError(
                    f"{self.name} did not fire: no user code was killed in {spared}", log=ground.bed.node.log
                )
            await asyncio.sleep(0.1)

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        return {}

    def _killed(self, ground: Ground) -> list[Execution]:
        book = ledger.read(ground.bed.ledger, time.monotonic() - ground.now())
        return [
            one
            for one in book.executions
            if one.ended is None and one.exit_code == KILLED and one.exited is not None and one.exited >= self.at
        ]
