"""The fault server: raw bytes over TCP and TLS, one script a connection, and a count of what arrived.

It runs on a loop and a thread of its own, so that a client under test is measured alone and may use any loop.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

_LINGER_ZERO = struct.pack("ii", 1, 0)  # close sends RST instead of FIN


class PeerGone(Exception):
    """The client closed the connection where the script expected a request."""


@dataclass(frozen=True, slots=True)
class Request:
    """One whole HTTP request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed

    @property
    def pod_name(self) -> str:
        name: str = self.json["metadata"]["name"]
        return name


class Peer:
    """One accepted connection, in the hands of a script."""

    def __init__(
        self, server: "FaultServer", number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self.number = number
        """0 for the server's first connection under this script, 1 for the second …"""
        self.reader = reader
        self.writer = writer

    async def tls(self, context: ssl.SSLContext | None = None) -> None:
        """Do the handshake, as an apiserver would first of all."""
        await self.writer.start_tls(context or self._server.context)

    async def request(self) -> Request:
        """Read one whole request and record it. Raises `PeerGone` when the client closed instead."""
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            method, path, _version = first.split(" ", 2)
            headers = {k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in lines if ":" in line)}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise PeerGone from error
        request = Request(method, path, headers, body)
        self._server.requests.append(request)
        return request

    async def send(self, data: bytes) -> None:
        """Raises `ConnectionError` when the client is gone, which ends the script."""
        self.writer.write(data)
        await self.writer.drain()

    async def drip(self, data: bytes, every_s: float) -> None:
        """One byte at a time, until the client has had enough."""
        for byte in data:
            if self.writer.is_closing():
                return
            await self.send(bytes([byte]))
            await asyncio.sleep(every_s)

    async def closed_by_client(self) -> None:
        """Say nothing more; end when the client does."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    async def close(self) -> None:
        """FIN: an orderly end."""
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """RST: as a process that was killed with data unread, or a firewall, ends a connection."""
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]


@dataclass
class FaultServer:
    """`script` decides what each connection meets; `requests` says what has arrived."""

    context: ssl.SSLContext
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    unexpected: list[BaseException] = field(default_factory=list)
    """What scripts raised: a broken script must fail the test, not look like a broken peer."""
    _script: Script | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __enter__(self) -> "FaultServer":
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-server", daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    @property
    def posts(self) -> list[Request]:
        return [request for request in self.requests if request.method == "POST"]

    def play(self, script: Script | None) -> None:
        """Forget the last script, its connections and its requests; from now on each connection gets this one."""
        self._run(self._drop())
        self._script = script
        self.connections = 0
        self.requests.clear()
        self.unexpected.clear()

    def call(self, function: Callable[[], None]) -> None:
        """Call it on the server's loop: how a test says something to a script."""
        self._loop.call_soon_threadsafe(function)

    async def _stop(self) -> None:
        self._server.close()
        await self._drop()
        await asyncio.sleep(0.05)  # aborted transports close their sockets in the loop's next turns

    async def _drop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number, self.connections = self.connections, self.connections + 1
        peer = Peer(self, number, reader, writer)
        try:
            if self._script is not None:
                await self._script(peer)
        except (PeerGone, ConnectionError, ssl.SSLError):
            pass  # the client ended it: what most scripts are about
        except asyncio.CancelledError:
            pass  # `play` ended it; asyncio would log a cancelled handler as an error
        except Exception as error:
            self.unexpected.append(error)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()  # `close` would wait for a peer that may be gone

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)


class BlackHole:
    """A port whose connections never get past their SYN: the kernel's accept queue is full and nobody accepts."""

    def __enter__(self) -> int:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        address = self._listener.getsockname()
        self._fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(address)
            self._fillers.append(filler)
        port: int = address[1]
        return port

    def __exit__(self, *_: object) -> None:
        for filler in self._fillers:
            filler.close()
        self._listener.close()
