"""Answers like the reported ones, and stranger: what kind of evidence counts (R1, R2)."""

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from dispatcher.rules import Disposition
from tests.faults.answers import JSON, always, answering, created, http, in_turn, pod, raw, says, status
from tests.faults.cases import BACKPRESSURE, HTML, PLACED, REJECTED, TEXT, UNAVAILABLE, denied, forbidden
from tests.faults.client import Client
from tests.faults.server import FaultServer, Peer, Request

QUOTA = 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5'


@pytest.mark.parametrize(
    ("code", "reason", "expect"),
    [
        # A known reason decides, whatever code a proxy in between made of it.
        (403, "InternalError", UNAVAILABLE),
        (404, "ServiceUnavailable", UNAVAILABLE),
        (409, "Timeout", UNAVAILABLE),
        (422, "ServerTimeout", UNAVAILABLE),
        (500, "Forbidden", REJECTED),
        (502, "Invalid", REJECTED),
        (503, "NotFound", REJECTED),
        (504, "Conflict", REJECTED),
        (500, "AlreadyExists", REJECTED),
        (500, "Unauthorized", REJECTED),
        (500, "StorageReadError", REJECTED),
        (503, "Gone", REJECTED),
        (503, "Expired", REJECTED),
        (400, "TooManyRequests", BACKPRESSURE),
        (500, "TooManyRequests", BACKPRESSURE),
        # 429 is tested before any reason.
        (429, "InternalError", BACKPRESSURE),
        (429, "Forbidden", BACKPRESSURE),
        # Any 3xx is Rejected, whatever it says: it will say so again.
        (300, "InternalError", REJECTED),
        (305, "ServiceUnavailable", REJECTED),
        (399, "TooManyRequests", REJECTED),
        # Any 2xx lost its answer, unless it is a denial.
        (200, "Forbidden", UNAVAILABLE),
        (201, "AlreadyExists", UNAVAILABLE),
        (202, "TooManyRequests", UNAVAILABLE),
        # Without a known reason, the code.
        (500, "EtcdOnHoliday", UNAVAILABLE),
        (502, "BadGateway", UNAVAILABLE),
        (503, "", UNAVAILABLE),
        (504, "GatewayTimeout", UNAVAILABLE),
        (507, "InsufficientStorage", UNAVAILABLE),
        (599, None, UNAVAILABLE),
        (403, "BackendForbids", REJECTED),
        (400, None, REJECTED),
        (451, None, REJECTED),
        (499, "ClientClosed", REJECTED),
        (408, None, UNAVAILABLE),
        (408, "RequestTimeout", UNAVAILABLE),
        # Reasons are exact, as in k8s.io/apimachinery.
        (403, "internalerror", REJECTED),
        (500, "forbidden", UNAVAILABLE),
        (500, " Forbidden", UNAVAILABLE),
    ],
)
def test_R1_a_known_reason_decides_and_without_one_the_code(
    code: int, reason: str | None, expect: Disposition, client: Client, server: FaultServer
):
    server.play(always(http(code, JSON, status(code, reason, "said so"))))
    verdict = client.create().verdict
    assert verdict.disposition is expect, verdict
    assert verdict.stale_credentials == (reason == "Unauthorized" and expect is REJECTED)


ODD_TYPES: list[Any] = [None, 7, True, [], ["InternalError"], {}, {"a": 1}, 1.5]


@pytest.mark.parametrize("field", ["reason", "message", "code", "details", "status", "metadata"])
@pytest.mark.parametrize(("code", "expect"), [(500, UNAVAILABLE), (403, REJECTED), (429, BACKPRESSURE)])
def test_R2_a_status_with_a_field_of_the_wrong_type_is_judged_by_the_rest(
    field: str, code: int, expect: Disposition, client: Client, server: FaultServer
):
    server.play(in_turn(*(http(code, JSON, {**status(code, None, "x"), field: value}) for value in ODD_TYPES)))
    for value in ODD_TYPES:
        assert client.create().verdict.disposition is expect, value


DENIAL = denied(": no", 500)


@pytest.mark.parametrize(
    "body",
    [
        [DENIAL],
        {"error": DENIAL},
        {"kind": "List", "items": [DENIAL]},
        {**DENIAL, "kind": "status"},
        {**DENIAL, "kind": ["Status"]},
        {**DENIAL, "apiVersion": "acme.example.test/v1"},
        {**DENIAL, "apiVersion": 1},
        {key: value for key, value in DENIAL.items() if key != "kind"},
        DENIAL["message"],
        {**DENIAL, "message": [DENIAL["message"]]},
        {**DENIAL, "message": " " + DENIAL["message"]},
        {**DENIAL, "message": "error: " + DENIAL["message"]},
        {**DENIAL, "message": DENIAL["message"].replace("admission", "Admission")},
        {**DENIAL, "message": 'admission webhook "" denied the request: no'},
        {**DENIAL, "message": "", "details": {"causes": [{"message": DENIAL["message"]}]}},
    ],
    ids=lambda body: str(body)[:60],
)
def test_R2_a_denial_counts_only_as_the_start_of_a_real_status_message(body: Any, client: Client, server: FaultServer):
    server.play(always(http(500, JSON, json.dumps(body))))
    assert client.create().verdict.disposition is UNAVAILABLE


@pytest.mark.parametrize(
    "body", [{k: v for k, v in DENIAL.items() if k != "apiVersion"}, {**DENIAL, "apiVersion": "meta.k8s.io/v1"}]
)
def test_R2_a_status_of_the_other_spellings_is_real(body: dict[str, Any], client: Client, server: FaultServer):
    server.play(always(http(500, JSON, body)))
    assert client.create().verdict.disposition is REJECTED


@pytest.mark.parametrize(
    ("code", "reason", "message", "expect"),
    [
        (403, "Forbidden", QUOTA, BACKPRESSURE),
        (403, None, QUOTA, BACKPRESSURE),
        (403, "QuotaExceeded", QUOTA, BACKPRESSURE),
        (403, "Forbidden", QUOTA.replace("exceeded quota", "status unknown for quota"), BACKPRESSURE),
        (403, "Forbidden", QUOTA.replace("exceeded quota", "failed quota"), REJECTED),
        (403, "Forbidden", QUOTA.replace("exceeded quota:", "exceeded quotas:"), REJECTED),
        (403, "Forbidden", "x " + QUOTA, REJECTED),
        (403, "Forbidden", QUOTA.replace("pods", "Pods"), REJECTED),
        (403, "Forbidden", QUOTA.replace("pods", "services"), REJECTED),
        (403, "Forbidden", "exceeded quota: q", REJECTED),
        (403, "NotFound", QUOTA, REJECTED),
        (403, "InternalError", QUOTA, UNAVAILABLE),
        (409, "Conflict", QUOTA, REJECTED),
        (500, None, QUOTA, UNAVAILABLE),
    ],
)
def test_R2_the_anchored_quota_text(
    code: int, reason: str | None, message: str, expect: Disposition, client: Client, server: FaultServer
):
    server.play(always(http(code, JSON, status(code, reason, message))))
    assert client.create().verdict.disposition is expect


@pytest.mark.parametrize(
    "text",
    [
        'Get "https://10.0.0.1/api/v1/namespaces/tasks/limitranges": stream error: stream ID 7; INTERNAL_ERROR',
        "not yet ready to handle request",
        'User "x" cannot create resource "pods" in API group "" in the namespace "tasks": RBAC: not found',
    ],
)
def test_R3_a_403_of_an_apiserver_in_trouble_is_a_rejection(text: str, client: Client, server: FaultServer):
    """As the rules are; the runbook and the suite's reports show how many attempts these cost."""
    server.play(always(http(403, JSON, forbidden(text))))
    assert client.create().verdict.disposition is REJECTED


def test_a_detail_is_one_printable_line_whatever_the_api_says(client: Client, server: FaultServer):
    """It ends in a row's reason and in a terminal; PostgreSQL takes no NUL."""
    for code, message in ((403, QUOTA + "\n\0\x1b[31m"), (422, "a\nb\0c")):
        server.play(always(http(code, JSON, status(code, None, message))))
        detail = client.create().verdict.detail
        assert detail
        assert detail.isprintable()


def test_R2_words_of_a_message_decide_nothing(client: Client, server: FaultServer):
    words = "connection refused: 503 ServiceUnavailable, i/o timeout, TooManyRequests, exceeded quota: q"
    server.play(always(http(403, JSON, forbidden(words))))
    assert client.create().verdict.disposition is REJECTED


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: pytest.importorskip("brotli").compress(data),  # the client asks for it where it is installed
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_compressed_answers_are_read(encoding: str, client: Client, server: FaultServer):
    def build(request: Request) -> bytes:
        return http(201, {**JSON, "Content-Encoding": encoding}, ENCODINGS[encoding](raw(pod(request))))

    server.play(answering(build))
    assert client.create().verdict.disposition is PLACED
    server.play(
        always(http(500, {**JSON, "Content-Encoding": encoding}, ENCODINGS[encoding](raw(denied(": no", 500)))))
    )
    assert client.create().verdict.disposition is REJECTED


def chunked(code: int, body: bytes, size: int) -> bytes:
    parts = b"".join(
        f"{len(part):x}\r\n".encode() + part + b"\r\n"
        for part in (body[i : i + size] for i in range(0, len(body), size))
    )
    head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + parts + b"0\r\n\r\n"


def test_chunked_answers_are_read(client: Client, server: FaultServer):
    server.play(answering(lambda request: chunked(201, raw(pod(request)), 17)))
    assert client.create().verdict.disposition is PLACED


@pytest.mark.parametrize("headers", [JSON, HTML, TEXT, {}, {"Content-Type": "application/vnd.kubernetes.protobuf"}])
def test_the_content_type_is_no_evidence(headers: dict[str, str], client: Client, server: FaultServer):
    server.play(always(http(500, headers, denied(": no", 500))))
    assert client.create().verdict.disposition is REJECTED


def test_HTTP_1_0_answers_end_with_the_connection(client: Client, server: FaultServer):
    async def script(peer: Peer) -> None:
        await peer.tls()
        body = raw(pod(await peer.request()))
        await peer.send(b"HTTP/1.0 201 Created\r\nContent-Type: application/json\r\n\r\n" + body)
        await peer.close()

    server.play(script)
    assert client.create().verdict.disposition is PLACED
    assert client.create().verdict.disposition is PLACED
    assert server.connections == 2


@pytest.mark.parametrize("informational", [100, 102, 103])
def test_informational_answers_are_passed_over(informational: int, client: Client, server: FaultServer):
    hint = http(informational, {"Link": "</x>"})
    server.play(answering(lambda request: hint + hint + created(request)))
    assert client.create().verdict.disposition is PLACED


def test_R1_a_final_1xx_is_unavailable(client: Client, server: FaultServer):
    switching = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n\x00\x00"
    server.play(says(switching))
    assert client.create().verdict.disposition is UNAVAILABLE


@pytest.mark.parametrize(
    ("code", "expect"), [(403, REJECTED), (413, REJECTED), (429, BACKPRESSURE), (503, UNAVAILABLE), (201, UNAVAILABLE)]
)
def test_R3_an_answer_larger_than_any_status_keeps_its_code(
    code: int, expect: Disposition, client: Client, server: FaultServer
):
    server.play(always(http(code, HTML, b"<p>no</p>" * (5 * 1024 * 1024 // 9))))
    assert client.create().verdict.disposition is expect


def test_R3_a_long_denial_is_still_one_and_its_detail_is_short(client: Client, server: FaultServer):
    server.play(always(http(503, JSON, denied(": " + "no\n\0" * 100_000, 503))))
    verdict = client.create().verdict
    assert verdict.disposition is REJECTED
    assert len(verdict.detail) <= 240
    assert verdict.detail.isprintable()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"kind":"Status"' * 1000,
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        b'"\\ud800"',
        b"null",
        b"NaN",
        b"7",
    ],
)
def test_bodies_that_no_parser_likes(body: bytes, client: Client, server: FaultServer):
    server.play(always(http(500, JSON, body)))
    assert client.create().verdict.disposition is UNAVAILABLE
    server.play(always(http(422, JSON, body)))
    assert client.create().verdict.disposition is REJECTED


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("0", 0),
        ("0007", 7),
        ("0" * 40 + "7", 7),
        ("2026", 2026),
        ("9" * 5000, 86_400),
        ("-1", None),
        ("+7", None),
        ("1.5", None),
        ("1e3", None),
        ("7, 8", None),
        ("7s", None),
        ("soon", None),
        ("", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("٧", None),
        ("\udcff7", None),
    ],
)
def test_R1_retry_after_is_whole_seconds_or_nothing(
    value: str, seconds: float | None, client: Client, server: FaultServer
):
    server.play(always(http(429, {"Retry-After": value}, "slow down")))
    verdict = client.create().verdict
    assert verdict.disposition is BACKPRESSURE
    assert verdict.retry_after_s == seconds


def test_of_two_retry_after_headers_the_first_counts(client: Client, server: FaultServer):
    server.play(always(http(429, [("retry-after", "3"), ("Retry-After", "9")], "slow down")))
    assert client.create().verdict.retry_after_s == 3


@pytest.mark.parametrize("code", [99, 600, 799, 999])
def test_codes_beyond_http_are_no_answer(code: int, client: Client, server: FaultServer):
    server.play(says(f"HTTP/1.1 {code:03} X\r\nContent-Length: 0\r\n\r\n".encode()))
    assert client.create().verdict.disposition is UNAVAILABLE
