"""An asyncio loop whose clock stands still while anything can run, and then jumps to the next timer.

Input and output stay real: a task that waits for PostgreSQL is waited for, and no virtual second passes meanwhile.
Sockets are looked at only when nothing else can run, so the order in which tasks run does not depend on how fast
the database answered: one seed, one schedule.
"""

import asyncio
import math
import selectors
import socket
from collections.abc import Callable, Mapping
from typing import Any

IO_WITHIN_S = 60.0
"""Real seconds after which a database that does not answer is called stuck."""
SPINS = 50_000
"""Turns of the loop within one instant after which it is called a spin."""


class Stuck(AssertionError):
    """Nothing can run any more, and no timer will change that; or things run for ever, and no time passes."""


class _Selector(selectors.BaseSelector):
    """A selector that never lets real time pass for a timer: `idle` is called instead."""

    def __init__(self, idle: Callable[[], None]) -> None:
        self._real = selectors.DefaultSelector()
        self._idle = idle
        self.turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        if self.turns > SPINS:
            self.turns = 0
            raise Stuck(f"{SPINS} turns of the loop, and no time has passed")
        if timeout is not None and timeout <= 0:
            return []
        if len(self._real.get_map()) > 1:  # the loop's own wake-up pipe is always there
            events = self._real.select(IO_WITHIN_S)
            if not events:
                raise Stuck(f"the database has not answered for {IO_WITHIN_S:g} real seconds")
            return events
        self._idle()
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual seconds. `quiet()` returns when only timers are left; `jump` moves the clock."""

    def __init__(self) -> None:
        self._now = 0.0
        self._quiet: asyncio.Future[None] | None = None
        self.grant: Callable[[], bool] = lambda: False
        """Asked first when nothing can run: lets one of those go on who wait for their turn. False: nobody did."""
        self._turns = _Selector(self._idle)
        super().__init__(self._turns)

    def time(self) -> float:
        return self._now

    def next_timer(self) -> float:
        """When the next timer fires, in virtual seconds; infinity if there is none."""
        timers: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009 - CPython's, typeshed hides it
        return min((one.when() for one in timers if not one.cancelled()), default=math.inf)

    def jump(self, to: float) -> None:
        if to > self._now:
            self._now, self._turns.turns = to, 0

    async def quiet(self) -> None:
        """Wait until everything that can run has run. The clock does not move meanwhile."""
        self._quiet = self.create_future()
        await self._quiet

    async def getaddrinfo(self, host: Any, port: Any, **kwargs: Any) -> Any:
        """In line: a thread would be something real that this loop cannot see."""
        return socket.getaddrinfo(host, port, **kwargs)

    def _idle(self) -> None:
        if self.grant():
            return
        if self._quiet is not None:
            quiet, self._quiet = self._quiet, None
            if not quiet.done():
                quiet.set_result(None)
            return
        when = self.next_timer()
        if when == math.inf:
            raise Stuck("every task waits, and no timer is set")
        self.jump(when)
