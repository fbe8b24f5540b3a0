"""What faults of the dispatchers share: which replica leads, whether one serves, and what makes a lane whole.

Seen from outside: processes by their own end, HTTP by a client of the suite, the leadership in PostgreSQL.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import aiohttp
import psycopg

from chaos import leaders
from chaos.errors import ChaosError
from chaos.faults.base import Evidence, Fault, Ground, UndoStep
from chaos.faults.control_plane_stop import start_if_down, start_step
from chaos.testbed.processes import ManagedProcess

if TYPE_CHECKING:
    from chaos.lanes import Lane

T = TypeVar("T")
LEADER_S = 60.0
"""A dead leader's lease is 15 s; a replica may take some seconds to start."""
ASK_S = 2.0
PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Replica:
    """One dispatcher process of a lane. `term` is the term that it led in."""

    lane: str
    name: str
    process: ManagedProcess
    url: str
    term: int


class ReplicaFault(Fault):
    """A fault of dispatchers. Healed = each replica of each lane serves, and one of each lane leads."""

    heal_deadline_s = 90.0

    def available(self, ground: Ground) -> str | None:
        return None if ground.lanes else "there is no dispatcher"

    def undo(self, ground: Ground) -> list[UndoStep]:
        return [start_step(process) for lane in ground.lanes.values() for process in lane.processes]

    async def heal(self, ground: Ground, deadline_s: float) -> Evidence:
        self.healing_since = ground.now()
        processes = [process for lane in ground.lanes.values() for process in lane.processes]
        await all_of(start_if_down(process, deadline_s) for process in processes)
        return {"ready": round(ground.now(), 3)}

    async def confirm_healed(self, ground: Ground, deadline_s: float) -> Evidence:
        return await whole(ground, deadline_s)


async def all_of(doing: Iterable[Awaitable[T]]) -> list[T]:
    """All of it to its end, and only then the first error, if there was one: what goes on in one lane must not run into
    the heal because another lane failed."""
    done = await asyncio.gather(*doing, return_exceptions=True)
    for one in done:
        if isinstance(one, BaseException):
            raise one
    return [one for one in done if not isinstance(one, BaseException)]


async def whole(ground: Ground, deadline_s: float) -> Evidence:
    """When each lane had all its replicas serving, and a leader. Raises ChaosError."""
    end = ground.now() + deadline_s

    async def of(lane: "Lane") -> float:
        while not all([await serves(url) == "serves" for url in lane.urls]):
            if ground.now() > end:
                raise ChaosError(
                    f"a replica of lane {lane.name} does not serve within {deadline_s:g} s", log=lane.processes[0].log
                )
            await asyncio.sleep(PAUSE_S)
        await leader_of(ground, lane.name, end - ground.now())
        return round(ground.now(), 6)

    at = dict(zip(ground.lanes, await all_of(map(of, ground.lanes.values())), strict=True))
    return {"at": max(at.values()), "lanes": at}


async def leaders_of(ground: Ground) -> dict[str, Replica]:
    """The replica that leads each lane now."""
    found = await all_of(leader_of(ground, lane, LEADER_S) for lane in ground.lanes)
    return dict(zip(ground.lanes, found, strict=True))


async def leader_of(ground: Ground, lane: str, deadline_s: float) -> Replica:
    """The replica whose lease runs, once there is one. Raises ChaosError."""
    end, url = ground.now() + deadline_s, ground.bed.database_url(lane, driver="postgresql")
    while True:
        try:
            seen = await asyncio.to_thread(leaders.leader, url)
        except psycopg.Error as error:
            seen, trouble = None, f": {error}"
        else:
            trouble = ""
        if seen is not None and seen.leads:
            by_name = replicas(ground.lanes)
            if seen.replica in by_name:
                process, address = by_name[seen.replica]
                return Replica(lane, seen.replica, process, address, seen.term)
            trouble = f": {seen.replica} is none of its replicas"
        if ground.now() > end:
            raise ChaosError(f"no replica of lane {lane} leads it within {deadline_s:g} s{trouble}")
        await asyncio.sleep(PAUSE_S)


def replicas(lanes: "Mapping[str, Lane]") -> dict[str, tuple[ManagedProcess, str]]:
    """Process and URL of every replica by its name."""
    return {
        f"{lane.name}-{number}": (process, url)
        for lane in lanes.values()
        for number, (process, url) in enumerate(zip(lane.processes, lane.urls, strict=True), start=1)
    }


async def serves(url: str) -> Literal["serves", "not ready", "refuses", "silent"]:
    """What a client of the suite meets at a replica: an answer, no answer at all, or nobody there."""
    try:
        async with asyncio.timeout(ASK_S), aiohttp.ClientSession(trust_env=False) as session:
            async with session.get(f"{url}/readyz") as answer:
                return "serves" if answer.status == 200 else "not ready"
    except TimeoutError:
        return "silent"
    except (aiohttp.ClientError, OSError):
        return "refuses"


def told(found: dict[str, Replica]) -> dict[str, str]:
    """Who led, as evidence."""
    return {lane: f"{replica.name}, term {replica.term}" for lane, replica in found.items()}
