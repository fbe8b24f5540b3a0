"""The official asyncio client, held to one request a create: no redirect, no retry, a bounded answer."""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import client
from kubernetes.aio.client import rest

from dispatcher.errors import Answer, RedirectRefused

_MAX_BODY = 4 * 1024 * 1024  # etcd takes 1.5 MiB: no Pod, and no Status, is larger
_NEVER_S = 3600.0  # the client wants a timeout; the deadlines that count are total, and the callers'
_KEEPALIVE_S = 75.0  # below the apiserver's idle timeout of 90 s (apiserver/pkg/server/secure_serving.go)


@dataclass(slots=True)
class Progress:
    """How far one request got; the client's trace hooks write it."""

    sent: bool = False


_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


class OneShotApiClient(client.ApiClient):  # type: ignore[misc]
    """`ApiClient` whose requests are sent once: a redirect is refused instead of followed (R3, R17)."""

    def __init__(self, configuration: Any) -> None:
        configuration.retries = None  # no hidden retry (R17)
        super().__init__(configuration)
        self.rest_client = _OneShotRest(configuration)

    async def post(self, path: str, body: dict[str, Any], *, user_agent: str, progress: Progress) -> Answer:
        """POST `body` once and read the whole answer. Bounded by the caller's deadline: it has none of its own."""
        token = _progress.set(progress)
        try:
            return await self._send("POST", path, body, user_agent)
        finally:
            _progress.reset(token)

    async def request(self, method: str, path: str, body: dict[str, Any] | None, *, deadline_s: float) -> Answer:
        """One request besides the create path, within a total deadline. :raises TimeoutError:"""
        async with asyncio.timeout(deadline_s):
            return await self._send(method, path, body, "rideout-dispatcher")

    async def _send(self, method: str, path: str, body: dict[str, Any] | None, user_agent: str) -> Answer:
        headers = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": user_agent}
        queries: list[tuple[str, str]] = []
        await self.update_params_for_auth(headers, queries, ["BearerToken"], path, method, body)
        url = self.configuration.host + path
        response = (await self.call_api(method, url, headers, body, _request_timeout=_NEVER_S)).response
        async with response:
            data = await _read_bounded(response)
            return Answer(response.status, response.headers, data)


class _OneShotRest(rest.RESTClientObject):  # type: ignore[misc]
    def __init__(self, configuration: Any) -> None:
        super().__init__(configuration)
        # Read here once: left to the client (`trust_env`), it costs every request two hops over a thread and
        # also reads ~/.netrc, whose credentials then clash with our own and fail the create.
        self.proxy = configuration.proxy or _environment_proxy(configuration.host)

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, keepalive_timeout=_KEEPALIVE_S, ttl_dns_cache=10
        )

    def _create_pool_manager(self) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_note_sent)
        trace.on_request_redirect.append(_refuse_redirect)
        return aiohttp.ClientSession(
            connector=self._create_connector(),
            trust_env=False,
            trace_configs=[trace],
            cookie_jar=aiohttp.DummyCookieJar(),
        )


def _environment_proxy(server: str) -> str | None:
    """The forward proxy that HTTPS_PROXY and NO_PROXY ask for, as curl and client-go read them."""
    url = urlsplit(server)
    if proxy_bypass(url.netloc.rpartition("@")[2]):
        return None
    proxies = getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


async def _note_sent(
    _session: aiohttp.ClientSession, _context: SimpleNamespace, _params: aiohttp.TraceRequestHeadersSentParams
) -> None:
    progress = _progress.get()
    if progress is not None:
        progress.sent = True


async def _refuse_redirect(
    _session: aiohttp.ClientSession, _context: SimpleNamespace, params: aiohttp.TraceRequestRedirectParams
) -> None:
    status = params.response.status
    params.response.close()
    raise RedirectRefused(status)


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    """The body, as far as an apiserver could have sent it. What is longer is no Status, and no answer to a
    create: of a refusal its code still speaks, a success is lost."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > _MAX_BODY:
            response.close()
            if response.ok:
                raise aiohttp.ClientPayloadError(f"answer larger than {_MAX_BODY} bytes")
            return b""
    return b"".join(chunks)
