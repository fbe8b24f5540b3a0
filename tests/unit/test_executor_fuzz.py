"""Any answer at all gives a disposition in time, and never an exception (R1, R3).

Through the real client over TLS: any status, any headers, any bytes, cut anywhere. Straight into the
classification: many more, with Status objects of any shape.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from dispatcher.errors import Answer, classify_answer
from dispatcher.rules import Disposition, Policy, ReOffer, Row, decide
from dispatcher.rules import Outcome as RulesOutcome
from tests.faults.answers import http, pod, raw
from tests.faults.client import ATTEMPT, Client, WallClock
from tests.faults.server import FaultServer, Peer

DEADLINE_S = 0.6
TOLERANCE_S = 0.5
WIRE_EXAMPLES = 200
CLASSIFIED_EXAMPLES = 1000

REASONS = [
    *("Unauthorized", "Forbidden", "NotFound", "AlreadyExists", "Conflict", "Gone", "Invalid", "ServerTimeout"),
    *("StorageReadError", "Timeout", "TooManyRequests", "BadRequest", "MethodNotAllowed", "NotAcceptable", "Expired"),
    *("RequestEntityTooLarge", "UnsupportedMediaType", "InternalError", "ServiceUnavailable", "Whatever", ""),
]
MESSAGES = [
    'admission webhook "w" denied the request: no',
    'Internal error occurred: failed calling webhook "w": admission webhook "w" denied the request',
    'pods "p" is forbidden: exceeded quota: q, requested: pods=1',
    "etcdserver: leader changed",
]
RETRY_AFTER = ["-1", "1.5", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "2026", "9" * 400, "", " 5 ", "٧", "5, 6", "\x7f"]

json_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=10),
    st.sampled_from([[], {}, [1], {"a": "b"}, ["InternalError"], {"kind": "Status"}]),
)
statuses = st.fixed_dictionaries(
    {"kind": st.sampled_from(["Status", "Status", "Status", "Pod", "status"]) | json_values},
    optional={
        "apiVersion": st.sampled_from(["v1", "meta.k8s.io/v1", "v2"]) | json_values,
        "status": st.sampled_from(["Failure", "Success"]) | json_values,
        "reason": st.sampled_from(REASONS) | json_values,
        "message": st.sampled_from(MESSAGES) | st.text() | json_values,
        "code": st.integers(100, 599) | json_values,
        "metadata": st.fixed_dictionaries({"uid": st.just("u1") | json_values, "name": st.text()}) | json_values,
        "details": json_values,
    },
).map(lambda value: json.dumps(value).encode())
bodies = st.one_of(statuses, st.binary(max_size=300), json_values.map(lambda value: repr(value).encode()))
header_values = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=30)
headers = st.lists(
    st.one_of(
        st.tuples(st.just("Retry-After"), st.sampled_from(RETRY_AFTER) | header_values),
        st.tuples(st.just("Content-Type"), st.sampled_from(["application/json", "text/html"]) | header_values),
        st.tuples(st.just("Location"), header_values),
        st.tuples(st.just("Content-Encoding"), st.sampled_from(["gzip", "br", "deflate", "zstd", "identity", "x"])),
        st.tuples(st.just("Transfer-Encoding"), st.sampled_from(["chunked", "gzip", "identity"])),
        st.tuples(st.just("Content-Length"), st.sampled_from(["0", "7", "-1", "x", "99999999999999999999"])),
        st.tuples(st.just("Connection"), st.sampled_from(["close", "keep-alive", "upgrade"])),
        st.tuples(st.just("Set-Cookie"), header_values),
        st.tuples(st.from_regex(r"\A[A-Za-z-]{1,12}\Z"), header_values),
    ),
    max_size=6,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the server says after the request, and how it ends."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes | None
    """None: the Pod that was asked for."""
    version: str
    cut: float | None
    ending: str


plans = st.builds(
    Plan,
    status=st.integers(100, 599) | st.sampled_from([200, 201, 201, 201, 204, 307, 401, 403, 408, 429, 500, 503]),
    headers=headers,
    body=st.none() | bodies,
    version=st.sampled_from(["1.1", "1.1", "1.0"]),
    cut=st.none() | st.floats(0, 1),
    ending=st.sampled_from(["FIN"] * 14 + ["RST"] * 5 + ["silence"]),
)


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Client]:
    with Client(kubeconfig, deadline_s=DEADLINE_S) as client:
        yield client


@settings(max_examples=WIRE_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_any_answer_on_the_wire_gives_a_disposition_in_time(plan: Plan, client: Client, server: FaultServer):
    async def script(peer: Peer) -> None:
        await peer.tls()
        request = await peer.request()
        body = raw(pod(request)) if plan.body is None else plan.body
        data = http(plan.status, plan.headers, body, version=plan.version)
        await peer.send(data if plan.cut is None else data[: int(len(data) * plan.cut)])
        match plan.ending:
            case "FIN":
                await peer.close()
            case "RST":
                await asyncio.sleep(0.005)
                peer.reset()
            case _:
                await peer.closed_by_client()

    async def timed() -> tuple[Any, float, float]:
        await client.executor.connection.read_anew()  # no idle connection of the last example
        control_began = time.monotonic()
        control = asyncio.create_task(asyncio.sleep(DEADLINE_S))
        outcome = await client.executor.create(ATTEMPT)
        took_s = time.monotonic() - control_began
        if took_s < DEADLINE_S:
            control.cancel()
            return outcome, took_s, 0.0
        await control
        return outcome, took_s, time.monotonic() - control_began - DEADLINE_S

    server.play(script)
    outcome, took_s, lateness_s = client.run(timed())
    verdict = outcome.verdict
    event(f"{verdict.disposition}: {verdict.cause.split('(')[0]}")
    assert isinstance(verdict.disposition, Disposition)
    assert not verdict.cause.startswith("bug"), verdict
    assert took_s <= DEADLINE_S + TOLERANCE_S + lateness_s
    in_time = not verdict.cause.startswith("deadline")  # a busy machine may not get as far as the request
    assert len(server.requests) == 1 or (not in_time and not server.requests), "R17: no retry, no redirect followed"
    if verdict.disposition is Disposition.PLACED:
        assert plan.status == 201
        assert verdict.pod_uid
        assert verdict.pod_name == server.requests[0].pod_name
    if plan.status == 201 and plan.body is None and plan.cut is None and not plan.headers:
        assert plan.ending == "RST" or not in_time or verdict.disposition is Disposition.PLACED, verdict
    _assert_a_decision_follows(outcome)


@settings(max_examples=CLASSIFIED_EXAMPLES, deadline=None)
@given(status=st.integers(100, 599), headers=headers, body=bodies)
def test_any_whole_answer_is_classified(status: int, headers: list[tuple[str, str]], body: bytes):
    verdict = classify_answer(Answer(status, CIMultiDict(headers), body), pod_name="p")
    now = WallClock().now()
    _assert_a_decision_follows(RulesOutcome(verdict, now, now))
    assert verdict.cause.isprintable()
    assert len(verdict.cause) < 60
    assert verdict.detail == "" or verdict.detail.isprintable()
    assert verdict.retry_after_s is None or 0 <= verdict.retry_after_s <= 86_400
    denied = b"admission webhook" in body
    if status >= 500 and not any(word.encode() in body for word in REASONS if word) and not denied:
        assert verdict.disposition is Disposition.UNAVAILABLE
    if 300 <= status < 400:
        assert verdict.disposition is Disposition.REJECTED
    if status == 429 and not denied:
        assert verdict.disposition is Disposition.BACKPRESSURE
    if 200 <= status < 300 and status != 201 and not denied:
        assert verdict.disposition is Disposition.UNAVAILABLE


def _assert_a_decision_follows(outcome: RulesOutcome) -> None:
    decision = decide(Row(), outcome, Policy())
    if isinstance(decision, ReOffer):
        assert 1 <= (decision.next_offer_at - outcome.ended_at).total_seconds() <= 60
        assert "\0" not in decision.reason, "PostgreSQL takes no NUL"
