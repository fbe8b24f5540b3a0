"""The way to the database: one transaction at a time, and all the trouble a database can make.

The statements and their transactions are real. Only one is open at any moment, and who comes next is drawn from the
schedule's seed: that is every order in which the transactions could have committed, without ever waiting for a lock,
and the same order each time. A process that is frozen or killed meets it at the door, never inside (but for traps).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import psycopg
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from tests.simulation.process import Does, Killed, Point, Process


def broken_connection(statement: str) -> OperationalError:
    """What SQLAlchemy raises when a backend was terminated under it."""
    cause = psycopg.OperationalError("server closed the connection unexpectedly")
    return OperationalError(statement, None, cause, connection_invalidated=True)


class Gate:
    """Opens one transaction at a time. `grant` is called when nothing else can run."""

    def __init__(self, engine: AsyncEngine, choose: Callable[[int], int]) -> None:
        """:param choose: which of n waits is next, 0 to n - 1."""
        self._engine = engine
        self._choose = choose
        self._waiting: list[tuple[Process, asyncio.Future[None]]] = []
        self._open = False
        self.down = False
        self.stalled = False
        self.transactions = 0

    @property
    def idle(self) -> bool:
        """No transaction is open. With virtual time about to pass, R10 wants it so."""
        return not self._open

    def engine_of(self, process: Process) -> "GatedEngine":
        return GatedEngine(self, process)

    def grant(self) -> bool:
        if self._open or self.stalled:
            return False
        able = [one for one in self._waiting if not one[0].frozen and not one[1].done()]
        if not able:
            return False
        chosen = able[self._choose(len(able)) if len(able) > 1 else 0]
        self._waiting.remove(chosen)
        self._open = True
        chosen[1].set_result(None)
        return True

    @asynccontextmanager
    async def transaction(self, process: Process, *, writes: bool) -> AsyncIterator[AsyncConnection]:
        await self._turn(process)
        process.in_transaction = True
        try:
            if self.down:
                raise broken_connection("connect")
            opened = self._engine.begin() if writes else self._engine.connect()
            async with opened as connection:
                yield connection
                if process.springs(Point.BEFORE_COMMIT) is Does.ERROR:
                    raise broken_connection("COMMIT, not done")
            if process.springs(Point.AFTER_COMMIT) is Does.ERROR:
                raise broken_connection("COMMIT, done, its answer lost")
        finally:
            self.transactions += 1
            self._open = False
            process.leave_transaction()

    async def _turn(self, process: Process) -> None:
        """Wait until it is this process's turn, and until it is awake to take it."""
        if process.springs(Point.BEFORE_TRANSACTION) is Does.ERROR:
            raise broken_connection("BEGIN")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((process, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove((process, turn))
            else:
                self._open = False  # its turn had come in the same moment
            await process.awake()
            raise
        if process.dead:
            self._open = False
            raise Killed


class GatedEngine:
    """What a dispatcher is given as its AsyncEngine: `begin` and `connect`, through the gate."""

    def __init__(self, gate: Gate, process: Process) -> None:
        self._gate, self._process = gate, process

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        async with self._gate.transaction(self._process, writes=True) as connection:
            yield connection

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        async with self._gate.transaction(self._process, writes=False) as connection:
            yield connection
