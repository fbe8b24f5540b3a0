"""A real HTTP server for the API's tests: uvicorn in this loop, aiohttp as its client."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import uvicorn

from dispatcher.api import Services, create_app
from dispatcher.serve import _Server

PROBLEM = "application/problem+json"


class Client:
    """Calls that give (status, document), and check that every error is a problem document."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self.session = url, session

    async def call(self, method: str, path: str, *, token: str | None = None, **options: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= options.pop("headers", {})
        async with self.session.request(method, self.url + path, headers=headers, **options) as answer:
            if answer.status < 400:
                return answer.status, await answer.json()
            assert answer.content_type == PROBLEM, await answer.text()
            document = await answer.json(content_type=PROBLEM)
            assert {"type", "title", "status", "detail"} <= set(document)
            assert document["status"] == answer.status
            return answer.status, document

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, Any]:
        return await self.call("POST", path, json=body, **options)


@asynccontextmanager
async def serving(services: Services, **options: Any) -> AsyncIterator[Client]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # from here on a client may connect; it is answered when the server is up
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = _Server(
        uvicorn.Config(
            create_app(services, **options),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=2,
        )
    )
    task = asyncio.create_task(server.serve([listener]))
    try:
        async with aiohttp.ClientSession(trust_env=False) as session:
            yield Client(url, session)
    finally:
        server.should_exit = True
        await task
