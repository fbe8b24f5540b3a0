"""A thin client for the testbed and its node: `kubernetes.aio`'s connection, raw JSON in and out.

The generated methods would build and check a model for every pod; the node and the suite read a few fields of each.
Transport errors pass untouched (`aiohttp.ClientError`, `TimeoutError`); an answer is always returned, whatever its
status, because most callers decide by it.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config

Json = dict[str, Any]
# What can go wrong between us and an answer. OSError: a certificate file that vanished, a broken pipe.
TRANSPORT_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Reply:
    """An answer: its HTTP status, and its JSON object (`{}` where the body was none)."""

    status: int
    body: Json

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """What went wrong, in the server's words."""
        return f"{self.status} {self.body.get('reason', '')}: {self.body.get('message', '')}"


class Kube:
    """One identity's connection pool to the apiserver."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    @classmethod
    @asynccontextmanager
    async def open(cls, kubeconfig: Path, *, user_agent: str = "rideout-testbed") -> AsyncIterator["Kube"]:
        settings = client.Configuration()
        settings.client_session_kwargs = {"trust_env": False}  # a proxy variable must not catch loopback traffic
        await config.load_kube_config(config_file=str(kubeconfig), client_configuration=settings, persist_config=False)
        api = client.ApiClient(settings)
        api.user_agent = user_agent
        for auth in (await settings.auth_settings()).values():  # a bearer token; certificates are the pool's business
            api.set_default_header(auth["key"], auth["value"])
        try:
            yield cls(api)
        finally:
            await api.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        deadline_s: float = 10.0,
    ) -> Reply:
        """One request under one total deadline. Raises what is in TRANSPORT_ERRORS; never for a status."""
        headers = {**self._api.default_headers, "Content-Type": content_type, "Accept": "application/json"}
        url = self._url(path, query)
        # call_api hands a lone number to aiohttp, which means the total: connect, send, and reading the body.
        answer = await self._api.call_api(method, url, headers, body, _request_timeout=deadline_s)
        raw = await answer.read()
        try:
            parsed = json.loads(raw)
        except ValueError:
            parsed = {"message": raw[:200].decode(errors="replace")}
        return Reply(answer.status, parsed if isinstance(parsed, dict) else {})

    async def watch(self, path: str, query: Mapping[str, str], *, silence_s: float) -> AsyncIterator[Json]:
        """Events of one watch request until the server ends it. The caller lists first and resumes after.

        `silence_s` is how long nothing at all may come (bookmarks come every minute): a peer that was frozen or cut
        off without a word is noticed by it. Yields the raw event, also one of type ERROR; an answer that is no
        watch is yielded as such an event too.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=silence_s)
        headers = {**self._api.default_headers, "Accept": "application/json"}
        url = self._url(path, {**query, "watch": "true", "allowWatchBookmarks": "true"})
        answer = await self._api.call_api("GET", url, headers, _request_timeout=timeout)
        response = answer.response
        try:
            if response.status != 200:
                yield {"type": "ERROR", "object": {"code": response.status}}
                return
            while line := await response.content.readline():
                yield cast(Json, json.loads(line))
        finally:
            response.close()

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self._api.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")


def write_kubeconfig(path: Path, server: str, authority: Path, certificate: Path, key: Path) -> Path:
    """A kubeconfig with one context that names its files by path. JSON, which is YAML too."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "rideout",
        "contexts": [{"name": "rideout", "context": {"cluster": "rideout", "user": "rideout"}}],
        "clusters": [{"name": "rideout", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "rideout", "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
    }
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(document, indent=1) + "\n")
    temporary.replace(path)
    return path
