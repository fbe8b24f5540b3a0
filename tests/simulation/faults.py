"""What an API can do to a create: each as the client sees it, with what the rules (R1–R3) make of it.

The answers are HTTP answers and the client's own exceptions; the product classifies them itself. What is expected is
written down here by hand, from the rules' text.
"""

import errno
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from aiohttp.client_reqrep import ConnectionKey

from dispatcher.errors import Answer

NEVER = math.inf
JSON = {"Content-Type": "application/json"}
_KEY = ConnectionKey("api.test", 443, True, True, None, None, None)

Reply = Callable[[dict[str, Any]], Answer]


@dataclass(frozen=True, slots=True)
class Fault:
    """One way for a create to end. `reply` gets the pod as the API would store it; it returns or raises."""

    name: str
    disposition: str
    reply: Reply
    cause: str | None = None
    """The cause that R4's reason must name, where the rules spell one out."""
    answers_after_s: float = 0.005
    commits_after_s: float | None = None
    """When etcd takes the pod, after the sending; None: never. It may well be after the client gave up."""
    sent: bool = True
    retry_after_s: float | None = None


def status(code: int, reason: str | None, message: str = "", **headers: str) -> Reply:
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    if reason is not None:
        body["reason"] = reason
    answer = Answer(code, {**JSON, **{k.replace("_", "-"): v for k, v in headers.items()}}, orjson.dumps(body))
    return lambda _pod: answer


def plain(code: int, body: bytes = b"<html>bad gateway</html>", **headers: str) -> Reply:
    answer = Answer(code, {"Content-Type": "text/html", **{k.replace("_", "-"): v for k, v in headers.items()}}, body)
    return lambda _pod: answer


def raises(make: Callable[[], Exception]) -> Reply:
    def reply(_pod: dict[str, Any]) -> Answer:
        raise make()

    return reply


def created(pod: dict[str, Any]) -> Answer:
    return Answer(201, JSON, orjson.dumps(pod))


def created_cut(_pod: dict[str, Any]) -> Answer:
    return Answer(201, JSON, b'{"kind":"Pod","apiVersion":"v1","metadata":{"na')


def _connect(number: int) -> Callable[[], Exception]:
    return lambda: aiohttp.ClientConnectorError(_KEY, OSError(number, errno.errorcode[number]))


def _refused() -> Exception:
    return aiohttp.ClientConnectorError(_KEY, ConnectionRefusedError(errno.ECONNREFUSED, "refused"))


def _reset() -> Exception:
    try:
        try:
            raise ConnectionResetError(errno.ECONNRESET, "reset")
        except ConnectionResetError as cause:
            raise aiohttp.ClientOSError(*cause.args) from cause
    except aiohttp.ClientOSError as error:
        return error


_WEBHOOK = 'Internal error occurred: failed calling webhook "fence.test": failed to call webhook: Post "https://x": '
_DENIED = 'admission webhook "fence.test" denied the request: '

U, B, R = "unavailable", "backpressure", "rejected"

PLACED = Fault("201", "placed", created, answers_after_s=0.02, commits_after_s=0.01)
SLOW = Fault("201 slow", "placed", created, answers_after_s=6.0, commits_after_s=5.5)

ALL: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        PLACED,
        SLOW,
        # nothing was sent, or nothing was stored
        Fault("refused", U, raises(_refused), "connection refused", sent=False),
        Fault("no route", U, raises(_connect(errno.EHOSTUNREACH)), sent=False, answers_after_s=3.0),
        Fault("503", U, status(503, "ServiceUnavailable"), "503 ServiceUnavailable"),
        Fault("503 at once", U, status(503, "ServiceUnavailable"), "503 ServiceUnavailable", answers_after_s=0.0),
        Fault("webhook down", U, status(500, "InternalError", _WEBHOOK + "connection refused"), "webhook unreachable"),
        Fault(
            "webhook down, quotes a denial",
            U,
            status(500, "InternalError", _WEBHOOK + _DENIED + "no"),
            "webhook unreachable",
            answers_after_s=10.0,
        ),
        Fault("etcd: leader changed", U, status(500, None, "etcdserver: leader changed"), answers_after_s=1.0),
        Fault("502 page", U, plain(502)),
        Fault("200 page", U, plain(200)),
        Fault("204", U, plain(204, b"")),
        Fault("408", U, plain(408)),
        Fault("connect hangs", U, created, "deadline exceeded after 15s", NEVER, sent=False),
        Fault("reset before", U, raises(_reset), "connection reset", 0.5),
        # the answer is lost, the pod is not
        Fault("hangs, stored", U, created, "deadline exceeded after 15s", NEVER, 0.05),
        Fault("hangs, stored late", U, created, "deadline exceeded after 15s", NEVER, 21.0),
        Fault("hangs, stored very late", U, created, "deadline exceeded after 15s", NEVER, 75.0),
        Fault("reset after", U, raises(_reset), "connection reset", 0.3, 0.1),
        Fault("closed after", U, raises(aiohttp.ServerDisconnectedError), None, 0.3, 0.1),
        Fault("answer cut", U, raises(aiohttp.ClientPayloadError), None, 0.3, 0.1),
        Fault("201 cut", U, created_cut, None, 0.1, 0.05),
        Fault("201 empty", U, plain(201, b""), None, 0.1, 0.05),
        Fault("504, stored", U, status(504, "Timeout"), "504 Timeout", 14.0, 13.9),
        Fault("504, stored late", U, status(504, "Timeout"), "504 Timeout", 10.0, 30.0),
        Fault("etcd: timed out, stored", U, status(500, None, "etcdserver: request timed out"), None, 7.0, 6.9),
        # the API is there, and has no room
        Fault("429", B, plain(429, b"Too many requests, please try again later.", Retry_After="1"), retry_after_s=1),
        Fault("429 wait", B, status(429, "TooManyRequests", "slow down", Retry_After="30"), retry_after_s=30),
        Fault("429 wait long", B, status(429, "TooManyRequests", Retry_After="900"), retry_after_s=900),
        Fault("quota", B, status(403, "Forbidden", 'pods "a" is forbidden: exceeded quota: q, requested: pods=1')),
        # the API understood, and refused
        Fault("422", R, status(422, "Invalid", "dial tcp 10.0.0.1:443: connect: connection refused")),
        Fault("403", R, status(403, "Forbidden", 'pods is forbidden: User "x" cannot create resource "pods"')),
        Fault("404", R, status(404, "NotFound", 'namespaces "tasks" not found')),
        Fault("409", R, status(409, "AlreadyExists", 'pods "a" already exists'), commits_after_s=0.01),
        Fault("401", R, status(401, "Unauthorized", "Unauthorized")),
        Fault("denied", R, status(403, None, _DENIED + "no")),
        Fault("denied as 503", R, status(503, "ServiceUnavailable", _DENIED + "the backend timed out, try again")),
        Fault("denied as 429", R, status(429, "TooManyRequests", _DENIED + "later")),
        Fault("denied as 500", R, status(500, None, _DENIED + _WEBHOOK + "timeout"), answers_after_s=2.0),
        Fault("redirect", R, plain(307, b"", Location="https://elsewhere.test")),
    )
}


@dataclass(frozen=True, slots=True)
class Mix:
    """How an API behaves for a while: each create meets one of these, by its weight."""

    name: str
    weights: Mapping[str, int] = field(default_factory=dict)

    def pick(self, chance: float) -> Fault:
        """:param chance: 0 to 1, drawn from the schedule's seed for this very create."""
        left = chance * sum(self.weights.values())
        for name, weight in self.weights.items():
            left -= weight
            if left < 0:
                return ALL[name]
        return ALL[next(iter(self.weights))]

    @property
    def refuses_connections(self) -> bool:
        """Reads fail with the creates."""
        return any(not ALL[name].sent for name in self.weights)


def _of(disposition: str, *, without: tuple[str, ...] = ()) -> dict[str, int]:
    return {name: 1 for name, fault in ALL.items() if fault.disposition == disposition and name not in without}


_LOST = {name: 1 for name, fault in ALL.items() if fault.disposition == U and fault.commits_after_s is not None}
_HANGS = {name: 1 for name, fault in ALL.items() if fault.answers_after_s == NEVER}

UP = Mix("up", {"201": 1})
DOWN: Mapping[str, Mix] = {
    mix.name: mix
    for mix in (
        Mix("refused", {"refused": 1}),
        Mix("503", {"503": 1}),
        Mix("webhook", {"webhook down": 3, "webhook down, quotes a denial": 1}),
        Mix("connect hangs", {"connect hangs": 1}),
        Mix("unavailable, nothing stored", dict.fromkeys(_of(U).keys() - _LOST.keys(), 1)),
        Mix("hangs", _HANGS),
        Mix("answers lost", _LOST),
        Mix("every unavailable", _of(U)),
    )
}
NOTHING_STORED = tuple(name for name, mix in DOWN.items() if not mix.weights.keys() & _LOST.keys())
MIXES: Mapping[str, Mix] = {
    mix.name: mix
    for mix in (
        UP,
        *DOWN.values(),
        Mix("slow", {"201": 1, "201 slow": 2}),
        Mix("flapping", {"201": 1, **_of(U)}),
        Mix("often lost", {"201": 3, **_LOST}),
        Mix("throttled", {"201": 1, **_of(B)}),
        Mix("throttled and down", {**_of(B), "503": 4, "hangs, stored late": 2}),
        Mix("rejecting", _of(R)),
        Mix("rejecting some", {"201": 4, **_of(R)}),
        Mix("anything", dict.fromkeys(ALL, 1)),
    )
}
