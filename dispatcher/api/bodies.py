"""Requests are read whole before a handler sees them: at most so many bytes, within so many seconds."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dispatcher.api.problems import problem


class BoundedBody:
    """Answers 413 past `max_bytes` and 408 where the body takes longer than `within_s` to come.

    FastAPI's own bound answers in plain text, and has no bound on time.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, within_s: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._within_s = within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        close = {"Connection": "close"}  # what is left of the body is not read
        try:
            async with asyncio.timeout(self._within_s):
                body = await self._read(receive)
        except TimeoutError:
            await problem(408, f"the body did not come within {self._within_s:g} s", headers=close)(
                scope, receive, send
            )
            return
        if body is None:
            large = problem(413, f"a body may have {self._max_bytes} bytes", headers=close)
            await large(scope, receive, send)
            return
        replayed: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return replayed.pop() if replayed else await receive()

        await self._app(scope, replay, send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body; None if it is too long. A client that went away has sent what it has sent."""
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                return None
            if not message.get("more_body", False):
                return bytes(body)
