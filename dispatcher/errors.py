"""What an answer of the API, or the lack of one, means. The only module that knows the client's exceptions.

Typed evidence only (R2): the HTTP status, the parsed Status object and exception *types*. The two anchored
texts that are read, a quota's and a webhook's own denial, are fields of a real Status, because the apiserver
offers nothing typed for them (`plugin/pkg/admission/resourcequota`, `apiserver/pkg/admission/plugin/webhook/errors`).

What passes untouched: `asyncio.CancelledError`, and everything that is no `Exception`.
"""

import errno
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from dispatcher.rules import Disposition, Verdict, go_duration


class DispatcherError(Exception):
    """Base of the errors this package raises itself."""


class SpecRefused(DispatcherError):
    """The pod cannot be built from the task's spec; nothing was sent (R3)."""


class NoUsableCredentials(DispatcherError):
    """The kubeconfig, or the pod's ServiceAccount, cannot be used; the message names the file and the remedy."""


class RedirectRefused(DispatcherError):
    """The API answered with a redirect. Following it would be a hidden second create (R3, R17)."""

    def __init__(self, status: int) -> None:
        super().__init__(f"redirect {status} not followed")
        self.status = status


class DeadlineExceeded(DispatcherError):
    """The client's own total deadline passed: connect, TLS, headers or body (R1)."""

    def __init__(self, deadline_s: float) -> None:
        super().__init__(f"deadline exceeded after {_seconds(deadline_s)}")
        self.deadline_s = deadline_s


# k8s.io/apimachinery/pkg/apis/meta/v1 StatusReason: which of the known reasons say "could not take it" (R1).
_UNAVAILABLE_REASONS = frozenset({"ServiceUnavailable", "Timeout", "ServerTimeout", "InternalError"})
_REFUSING_REASONS = frozenset(
    {
        "Unauthorized",
        "Forbidden",
        "NotFound",
        "AlreadyExists",
        "Conflict",
        "Gone",
        "Invalid",
        "BadRequest",
        "MethodNotAllowed",
        "NotAcceptable",
        "RequestEntityTooLarge",
        "UnsupportedMediaType",
        "Expired",
        "StorageReadError",  # a stored object is corrupt: known, and not among R1's
    }
)

_DENIAL = re.compile(r'admission webhook "[^"]+" denied the request')
_QUOTA = re.compile(r'pods "[^"]*" is forbidden: (?:exceeded quota|status unknown for quota): ')
_CALL_FAILED = "Internal error occurred: failed calling webhook "

_STATUS_VERSIONS = (None, "v1", "meta.k8s.io/v1")  # a missing one means v1 (client-go/rest/request.go)

_HIGHEST_RETRY_AFTER_S = 86_400.0

# The typed face of an operating system's error, where its own name would not tell an operator enough.
_BY_ERRNO = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.ECONNABORTED: "connection reset",
    errno.EPIPE: "connection reset",
    errno.ETIMEDOUT: "connect timeout",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network unreachable",
    errno.EMFILE: "too many open files",
    errno.ENFILE: "too many open files",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer. `headers` is matched case-insensitively by its own type or by lower-case keys."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def classify_answer(answer: Answer, *, pod_name: str | None = None) -> Verdict:
    """Classify a whole answer to a create, in the order R1 gives.

    :param pod_name: the name that was asked for; a 201 for another name is not the answer to this create.
    """
    parsed = _parse(answer.body)
    status = parsed if parsed.get("kind") == "Status" and parsed.get("apiVersion") in _STATUS_VERSIONS else {}
    message = status.get("message")
    message = message if isinstance(message, str) else ""
    reason = status.get("reason")
    reason = reason if isinstance(reason, str) else ""
    code = answer.status

    if _DENIAL.match(message):  # first: a webhook may deny with any code, also 429 and 503 (R2)
        return _rejected(f"{code} denied by webhook", message, rule="R2")
    if 300 <= code < 400:
        return _rejected(f"{code} redirect", "not followed: it would be a hidden second create")
    if 200 <= code < 300:
        return _success(code, parsed, pod_name)
    if code == 429 or reason == "TooManyRequests":
        return Verdict(
            Disposition.BACKPRESSURE,
            f"{code} TooManyRequests",
            rule="R1",
            retry_after_s=retry_after_s(answer.headers),
        )
    if reason in _UNAVAILABLE_REASONS:
        unreachable = reason == "InternalError" and message.startswith(_CALL_FAILED)
        return _unavailable("webhook unreachable" if unreachable else f"{code} {reason}")
    if code == 403 and (reason == "Forbidden" or reason not in _REFUSING_REASONS) and _QUOTA.match(message):
        return Verdict(
            Disposition.BACKPRESSURE,
            "403 quota",
            rule="R2",
            retry_after_s=retry_after_s(answer.headers),
            detail=_one_line(message),
        )
    if reason in _REFUSING_REASONS:
        return _rejected(
            f"{code} {reason}",
            message,
            # For a random name (R17) it can only be our own create, delivered twice.
            may_exist=reason == "AlreadyExists",
            stale_credentials=code == 401 or reason == "Unauthorized",
        )
    if code >= 500 or code < 200:
        return _unavailable(f"{code} without a known reason" if status else f"{code} without a Status")
    if code == 408:
        return _unavailable("408 request timeout")
    return _rejected(f"{code}", message or _first_words(answer.body), stale_credentials=code == 401)


def classify_exception(error: Exception, *, sent: bool) -> Verdict | None:
    """Classify the failure of a create that got no whole answer; None for an exception that is a bug (R3).

    :param sent: whether any byte of the request can have left (R3, *may have been committed*).
    """
    match error:
        case DeadlineExceeded():
            return _unavailable(str(error), may_exist=sent)
        case RedirectRefused():
            return _rejected(f"{error.status} redirect", "not followed: it would be a hidden second create")
        case SpecRefused():
            return _rejected("spec refused by the client", str(error))
        case NoUsableCredentials():
            return _rejected("no usable credentials", str(error), stale_credentials=True)
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            return _rejected("server certificate does not verify", _one_line(str(error)))
        case aiohttp.ClientConnectorDNSError():
            return _unavailable("name does not resolve", may_exist=False)
        case aiohttp.ClientHttpProxyError():
            return _unavailable(f"proxy refused the tunnel ({error.status})", may_exist=False)
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():  # what the kubeconfig calls its server
            return _rejected("no usable API address", str(error))
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return _unavailable("TLS handshake failed" if not sent else "TLS broke off", may_exist=sent)
        case aiohttp.ClientConnectorError():
            return _unavailable(_os_error(error.os_error), may_exist=False)
        case aiohttp.ServerDisconnectedError():
            return _unavailable("connection closed before the answer", may_exist=sent)
        case aiohttp.ClientPayloadError():
            return _unavailable("answer cut", may_exist=sent)
        case aiohttp.ClientResponseError():  # not HTTP at all; its status 400 is made up by the client
            return _unavailable("unreadable answer", may_exist=sent)
        case TimeoutError():
            return _unavailable("transport timeout", may_exist=sent)
        case OSError():  # ClientOSError too: an open connection broke
            return _unavailable(_os_error(error), may_exist=sent)
        case aiohttp.ClientError():
            return _unavailable(f"transport failed: {type(error).__name__}", may_exist=sent)
        case _:
            return None


def bug(error: Exception, *, sent: bool) -> Verdict:
    """An exception of no known type: Rejected, so that it surfaces within minutes (R3)."""
    return Verdict(
        Disposition.REJECTED, f"bug: {type(error).__name__}", "R3", may_exist=sent, detail=_one_line(str(error))
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in whole seconds, or None for a date and for nonsense. The caller caps it (60 s)."""
    value = (headers.get("Retry-After") or headers.get("retry-after") or "").strip()
    if not (value.isascii() and value.isdigit()):
        return None
    digits = value.lstrip("0")[:9]  # int() refuses thousands of digits
    return min(float(digits or "0"), _HIGHEST_RETRY_AFTER_S)


def _success(code: int, parsed: Mapping[str, Any], pod_name: str | None) -> Verdict:
    """Only a whole 201 with a Pod that has a uid proves the pod; any other 2xx lost its answer (R1)."""
    metadata = parsed.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    uid, name = metadata.get("uid"), metadata.get("name", pod_name)
    if code == 201 and parsed.get("kind") == "Pod" and isinstance(uid, str) and uid and pod_name in (None, name):
        name = name if isinstance(name, str) else ""
        return Verdict(Disposition.PLACED, "201 Created", rule="R1", may_exist=True, pod_name=name, pod_uid=uid)
    return _unavailable(f"{code} without a Pod")


def _unavailable(cause: str, *, may_exist: bool = True) -> Verdict:
    return Verdict(Disposition.UNAVAILABLE, cause, rule="R1", may_exist=may_exist)


def _rejected(
    cause: str, detail: str, *, rule: str = "R3", may_exist: bool = False, stale_credentials: bool = False
) -> Verdict:
    return Verdict(Disposition.REJECTED, cause, rule, may_exist, _one_line(detail), stale_credentials=stale_credentials)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _os_error(error: OSError) -> str:
    # The client wraps what broke an open connection and keeps only its arguments: the type is in the cause.
    inner = error.__cause__ if isinstance(error, aiohttp.ClientOSError) else error
    match inner:
        case ssl.SSLError():
            return "TLS broke off"
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionResetError() | BrokenPipeError() | ConnectionAbortedError():
            return "connection reset"
        case TimeoutError():
            return "connect timeout"
    number = error.errno or 0
    return _BY_ERRNO.get(number) or errno.errorcode.get(number) or "connection broke"


def _seconds(seconds: float) -> str:
    return go_duration(seconds) if seconds >= 1 and seconds == int(seconds) else f"{seconds:g}s"


def _first_words(body: bytes) -> str:
    return body[:120].decode("utf-8", "replace")


def _one_line(text: str, width: int = 240) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"
