"""What an apiserver, and what stands before it, says: as bytes."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.faults.server import Peer, Request, Script

JSON = {"Content-Type": "application/json"}
Headers = Mapping[str, str] | Iterable[tuple[str, str]]


def http(
    status: int,
    headers: Headers = (),
    body: bytes | str | dict[str, Any] = b"",
    *,
    version: str = "1.1",
    length: int | None = None,
) -> bytes:
    """A whole HTTP answer. `length` lies about the body's; a body of `1xx` and 204 gets none."""
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    content = raw(body)
    if not any(name.lower() in ("content-length", "transfer-encoding") for name, _ in pairs) and (
        status >= 200 and status != 204
    ):
        pairs.append(("Content-Length", str(len(content) if length is None else length)))
    head = "".join(f"{name}: {value}\r\n" for name, value in pairs)
    return f"HTTP/{version} {status} Whatever\r\n{head}\r\n".encode("utf-8", "surrogateescape") + content


def raw(body: bytes | str | dict[str, Any]) -> bytes:
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def status(code: int, reason: object = None, message: object = "", **more: object) -> dict[str, Any]:
    """A `Status` object, as `k8s.io/apimachinery` writes one; `reason` None leaves it out, as etcd's errors do."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body |= {"message": message, "code": code}
    if reason is not None:
        body["reason"] = reason
    return body | more


def pod(request: Request, **metadata: object) -> dict[str, Any]:
    """The Pod as an apiserver returns it: what was sent, with a uid."""
    asked = request.json
    return {**asked, "metadata": {**asked["metadata"], "uid": "5f3c2a4e-0000-4000-8000-000000000001", **metadata}}


def created(request: Request) -> bytes:
    return http(201, JSON, pod(request))


def always(answer: bytes) -> Script:
    """Every request gets this answer, on connections that stay open."""

    async def script(peer: Peer) -> None:
        await peer.tls()
        while True:
            await peer.request()
            await peer.send(answer)

    return script


def accepts_all() -> Script:
    """A healthy apiserver: each create is a Pod."""

    async def script(peer: Peer) -> None:
        await peer.tls()
        while True:
            await peer.send(created(await peer.request()))

    return script


def in_turn(*answers: bytes | None) -> Script:
    """The first request gets the first answer, and so on, over however many connections; None is a created Pod."""
    left = list(answers)

    async def script(peer: Peer) -> None:
        await peer.tls()
        while True:
            request = await peer.request()
            answer = left.pop(0)
            await peer.send(created(request) if answer is None else answer)

    return script


def answering(build: Callable[[Request], bytes]) -> Script:
    """Every request gets an answer made for it."""

    async def script(peer: Peer) -> None:
        await peer.tls()
        while True:
            await peer.send(build(await peer.request()))

    return script


def says(data: bytes, *, then_close: bool = True) -> Script:
    """After the request, these bytes as they are."""

    async def script(peer: Peer) -> None:
        await peer.tls()
        await peer.request()
        await peer.send(data)
        if then_close:
            await peer.close()
        else:
            await peer.closed_by_client()

    return script
