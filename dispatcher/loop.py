"""The main path: a due row is claimed, its Pod created, the outcome classified, decided and settled.

Everything else here is who may do that (the leader), and when it stops.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from dispatcher.clock import Clock
from dispatcher.dispatch import BufferedPath, Offers, Path, TickPath, Witness
from dispatcher.executors import Executor
from dispatcher.leadership import Leadership
from dispatcher.planner import plan
from dispatcher.podgc import PodGc
from dispatcher.reaper import Reaper
from dispatcher.settings import Mode, Settings

log = structlog.get_logger(__name__)

_DATABASE_PAUSE_S = 1.0
_NOT_LEADING_PAUSE_S = 0.1


async def run(
    settings: Settings,
    engine: AsyncEngine,
    executor: Executor,
    *,
    clock: Clock,
    witness: Witness,
    stop: asyncio.Event,
    leadership: Leadership | None = None,
    reaper: Reaper | None = None,
    podgc: PodGc | None = None,
) -> None:
    """Lead, plan and dispatch until `stop` is set, then hand everything back in order (R25)."""
    leadership = leadership or leadership_of(settings, engine, clock)
    offers = Offers(
        engine=engine,
        clock=clock,
        executor=executor,
        policy=settings.rules,
        replica=settings.replica,
        claim_s=settings.claim_s,
        mark_queued=settings.mode is Mode.BUFFERED,
        witness=witness,
    )
    path = path_of(settings, offers, clock)

    async def dispatch() -> None:
        room = await path.room()
        if stop.is_set() or not leadership.leads:  # either may have come while it waited for room
            return
        claims = await offers.claim(room)
        path.take(claims)
        if len(claims) < room:  # a claim that came back full is followed by the next at once (R18)
            await _pause(settings.tick_s, stop)

    async def planning() -> None:
        await plan(engine, clock)
        await _pause(settings.tick_s, stop)

    async def reaping() -> None:
        assert reaper is not None
        await reaper.round(leadership.steady_since)
        await _pause(settings.tick_s, stop)

    async def cleaning() -> None:
        assert podgc is not None
        await podgc.round()
        await _pause(settings.pod_list_s, stop)

    async def leading() -> None:
        await leadership.renew()
        await _pause(settings.leader_renew_s, stop)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_until(stop, leading, when=lambda: True))
        tasks.create_task(_until(stop, planning, when=lambda: leadership.leads))
        tasks.create_task(_until(stop, dispatch, when=lambda: leadership.leads))
        if reaper is not None:
            tasks.create_task(_until(stop, reaping, when=lambda: leadership.leads))
        if podgc is not None:
            tasks.create_task(_until(stop, cleaning, when=lambda: leadership.leads))

    await path.drain()
    await leadership.resign()
    await executor.close()


def leadership_of(settings: Settings, engine: AsyncEngine, clock: Clock) -> Leadership:
    holder = f"{settings.replica}/{uuid.uuid4().hex[:8]}"
    return Leadership(engine, clock, holder=holder, lease_s=settings.leader_lease_s)


def path_of(settings: Settings, offers: Offers, clock: Clock) -> Path:
    """The dispatch path that the setting names (R18)."""
    if settings.mode is Mode.TICK:
        return TickPath(offers, slots=settings.slots)
    return BufferedPath(offers, clock, workers=settings.slots, buffer=settings.buffer, wait_s=settings.buffer_wait_s)


async def _until(stop: asyncio.Event, step: Callable[[], Awaitable[None]], *, when: Callable[[], bool]) -> None:
    """Repeat `step` while `when` holds. Neither the database nor a bug ends the loop (R3, R20)."""
    while not stop.is_set():
        if not when():
            await _pause(_NOT_LEADING_PAUSE_S, stop)
            continue
        try:
            await step()
        except (SQLAlchemyError, OSError) as error:
            log.warning("loop.database_away", step=step.__name__, error=type(error).__name__)
            await _pause(_DATABASE_PAUSE_S, stop)
        except Exception:
            log.exception("bug.loop", step=step.__name__)
            await _pause(_DATABASE_PAUSE_S, stop)


async def _pause(seconds: float, stop: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
