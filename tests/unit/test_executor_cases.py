"""Every public report that is an HTTP answer to a create, through the real client, under its id (R1–R3, R17)."""

import pytest

from dispatcher.rules import Disposition
from tests.faults import cases
from tests.faults.answers import JSON, http, status
from tests.faults.cases import CASES, Variant
from tests.faults.client import Client
from tests.faults.server import FaultServer, Peer

VARIANTS = cases.variants()


@pytest.mark.parametrize(("case_id", "variant"), [pytest.param(i, v, id=f"{i} {v.name}") for i, v in VARIANTS])
def test_a_reported_answer_means_what_the_rules_say(
    case_id: str, variant: Variant, client: Client, server: FaultServer
):
    left = list(variant.steps)

    async def script(peer: Peer) -> None:
        await peer.tls()
        while True:
            request = await peer.request()
            await peer.send(left.pop(0).answer(request))

    server.play(script)
    for number, step in enumerate(variant.steps, start=1):
        verdict = client.create().verdict
        assert verdict.disposition is step.expect, f"create {number}: {verdict}"
        # R17: sent once, whatever came of it; a redirect is not followed (R3).
        assert len(server.requests) == number
        assert server.requests[-1].method == "POST"
        match step.expect:
            case Disposition.PLACED:
                assert verdict.pod_name == server.requests[-1].pod_name
                assert verdict.pod_uid
                assert verdict.may_exist
            case Disposition.UNAVAILABLE:
                assert verdict.may_exist, "R3: it was sent and not refused, so it may have been committed"
            case Disposition.REJECTED | Disposition.BACKPRESSURE:
                assert verdict.may_exist == ("AlreadyExists" in verdict.cause)
        assert verdict.cause
        assert "\n" not in verdict.cause + verdict.detail
        assert len(verdict.cause) < 60, "R4: the cause is short"
    assert len({request.pod_name for request in server.posts}) == len(variant.steps), "R17: a name is asked for once"


def test_every_case_of_the_file_is_tested_somewhere():
    tested = {case_id for case_id, _ in VARIANTS}
    placed = tested | cases.SOCKETS | cases.LIMITER | cases.OUTAGES | cases.NOT_A_CREATE
    assert placed == set(CASES)


@pytest.mark.parametrize(
    ("code", "body", "cause"),
    [
        (503, status(503, "ServiceUnavailable"), "503 ServiceUnavailable"),
        (504, status(504, "Timeout"), "504 Timeout"),
        (500, status(500, "ServerTimeout"), "500 ServerTimeout"),
        (500, cases.call_failed("EOF"), "webhook unreachable"),
        (500, status(500, None, "etcdserver: leader changed"), "500 without a known reason"),
        (502, "<html>", "502 without a Status"),
        (408, "<html>", "408 request timeout"),
        (429, "", "429 TooManyRequests"),
        (403, cases.forbidden("exceeded quota: q, requested: pods=1"), "403 quota"),
        (403, cases.forbidden("no"), "403 Forbidden"),
        (422, status(422, "Invalid"), "422 Invalid"),
        (500, cases.denied(": no", 500), "500 denied by webhook"),
        (302, "", "302 redirect"),
        (200, "<html>", "200 without a Pod"),
    ],
)
def test_R4_causes_are_short_and_typed(code: int, body: object, cause: str, client: Client, server: FaultServer):
    answer = http(code, JSON, body)  # type: ignore[arg-type]

    async def script(peer: Peer) -> None:
        await peer.tls()
        await peer.request()
        await peer.send(answer)
        await peer.closed_by_client()

    server.play(script)
    assert client.create().verdict.cause == cause
