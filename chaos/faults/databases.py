"""What faults of PostgreSQL share: a client of the suite that goes the dispatchers' way, and what makes it whole."""

import asyncio
from typing import TYPE_CHECKING

import psycopg

from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground
from chaos.faults.replicas import PAUSE_S, whole
from chaos.leaders import connect

if TYPE_CHECKING:
    from chaos.lanes import Lane


class DatabaseFault(Fault):
    """Healed = a client of the suite can write into each lane's database on the dispatchers' way, each replica serves
    again, and one of each lane leads."""

    heal_deadline_s = 90.0

    def available(self, ground: Ground) -> str | None:
        if not ground.lanes:
            return "there is no dispatcher"
        return None if ground.bed.postgres.alive else "PostgreSQL does not run"

    async def confirm_fired(self, ground: Ground) -> Evidence:
        """Nobody can connect, on no lane's way."""
        at = ground.now()
        for name, lane in ground.lanes.items():
            if (why := await asyncio.to_thread(_refusal, lane)) is None:
                raise ChaosError(
                    f"{self.name} did not fire: a client of the suite can write into lane {name}'s database"
                )
        return {"at": round(at, 6), "cause": why, "lanes": dict.fromkeys(ground.lanes, round(at, 6))}

    async def confirm_healed(self, ground: Ground, deadline_s: float) -> Evidence:
        end = ground.now() + deadline_s
        for name, lane in ground.lanes.items():
            while (why := await asyncio.to_thread(_refusal, lane)) is not None:
                if ground.now() > end:
                    raise ChaosError(f"lane {name}'s database takes no write within {deadline_s:g} s: {why}")
                await asyncio.sleep(PAUSE_S)
        wrote = ground.now()
        return {**await whole(ground, end - wrote), "wrote": round(wrote, 6)}


def way_of(lane: "Lane") -> str:
    """The URL that the lane's dispatchers connect to."""
    return lane.processes[0].env["RIDEOUT_DATABASE_URL"].replace("+psycopg", "")


def _refusal(lane: "Lane") -> str | None:
    """Why a new connection cannot write; None if it can."""
    try:
        with connect(way_of(lane)) as connection:
            connection.execute("CREATE TEMPORARY TABLE chaos_was_here (at timestamptz DEFAULT now())")
            connection.execute("INSERT INTO chaos_was_here DEFAULT VALUES")
        return None
    except psycopg.Error as error:
        return " ".join(str(error).split()) or type(error).__name__
