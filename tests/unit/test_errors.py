"""The boundary itself: what no server can make the client raise (R3)."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from dispatcher.errors import (
    Answer,
    DeadlineExceeded,
    NoUsableCredentials,
    RedirectRefused,
    SpecRefused,
    bug,
    classify_answer,
    classify_exception,
    retry_after_s,
)
from dispatcher.rules import Disposition
from tests.faults import transport
from tests.faults.client import ATTEMPT, Client
from tests.faults.server import FaultServer

UNAVAILABLE, REJECTED = Disposition.UNAVAILABLE, Disposition.REJECTED


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError("x"), RuntimeError("x"), TypeError("x"), ExceptionGroup("x", [OSError()])]
)
def test_R3_an_unknown_exception_is_a_bug_and_is_rejected(error: Exception):
    assert classify_exception(error, sent=True) is None
    verdict = bug(error, sent=True)
    assert (verdict.disposition, verdict.cause) == (REJECTED, f"bug: {type(error).__name__}")
    assert verdict.may_exist


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize(
    ("error", "disposition", "cause"),
    [
        (DeadlineExceeded(15), UNAVAILABLE, "deadline exceeded after 15s"),
        (DeadlineExceeded(90), UNAVAILABLE, "deadline exceeded after 1m30s"),
        (DeadlineExceeded(0.5), UNAVAILABLE, "deadline exceeded after 0.5s"),
        (TimeoutError(), UNAVAILABLE, "transport timeout"),
        (aiohttp.ServerTimeoutError(), UNAVAILABLE, "transport timeout"),
        (aiohttp.ServerDisconnectedError(), UNAVAILABLE, "connection closed before the answer"),
        (aiohttp.ClientPayloadError(), UNAVAILABLE, "answer cut"),
        (aiohttp.ClientConnectionError(), UNAVAILABLE, "transport failed: ClientConnectionError"),
        (aiohttp.ClientConnectionResetError(), UNAVAILABLE, "connection reset"),
        (aiohttp.ClientOSError(32, "x"), UNAVAILABLE, "connection reset"),
        (aiohttp.ClientOSError(5, "x"), UNAVAILABLE, "EIO"),
        (aiohttp.ClientOSError(), UNAVAILABLE, "connection broke"),
        (ConnectionRefusedError(), UNAVAILABLE, "connection refused"),
        (OSError(113, "x"), UNAVAILABLE, "no route to host"),
        (OSError(24, "x"), UNAVAILABLE, "too many open files"),
        (RedirectRefused(307), REJECTED, "307 redirect"),
        (SpecRefused("no command"), REJECTED, "spec refused by the client"),
        (NoUsableCredentials("no file"), REJECTED, "no usable credentials"),
    ],
)
def test_R1_R3_known_exceptions(error: Exception, disposition: Disposition, cause: str, sent: bool):
    verdict = classify_exception(error, sent=sent)
    assert verdict is not None
    assert (verdict.disposition, verdict.cause) == (disposition, cause)
    assert verdict.may_exist == (sent and disposition is UNAVAILABLE)


def test_R2_a_message_that_mentions_a_refused_connection_is_not_one():
    assert classify_exception(ValueError("connection refused: 503 ServiceUnavailable"), sent=True) is None


def test_R3_a_bug_does_not_leave_the_executor_and_is_logged_with_its_traceback(
    client: Client, server: FaultServer, monkeypatch: pytest.MonkeyPatch
):
    def breaks(*_: Any) -> str:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(client.executor, "_sign", breaks)
    with capture_logs() as logged:
        verdict = client.create().verdict
    assert (verdict.disposition, verdict.cause, verdict.may_exist) == (REJECTED, "bug: ZeroDivisionError", False)
    assert [(line["event"], line["row"], line["epoch"]) for line in logged] == [("bug.create", 7, 3)]
    assert logged[0]["exc_info"]
    assert server.connections == 0


def test_a_cancelled_create_is_cancelled_and_not_classified(kubeconfig: Path, server: FaultServer):
    server.play(transport.silence_after_request)
    with Client(kubeconfig) as client:

        async def cancelled() -> None:
            create = asyncio.create_task(client.executor.create(ATTEMPT))
            while not server.posts:  # noqa: ASYNC110 - the server lives on another thread
                await asyncio.sleep(0.01)
            create.cancel()
            with pytest.raises(asyncio.CancelledError):
                await create

        client.run(asyncio.wait_for(cancelled(), 5))


def test_an_answer_needs_no_name_to_be_classified():
    """As `explain` asks."""
    body = b'{"kind":"Pod","metadata":{"name":"p","uid":"u"}}'
    placed = classify_answer(Answer(201, {}, body))
    assert (placed.disposition, placed.pod_name, placed.pod_uid) == (Disposition.PLACED, "p", "u")
    assert classify_answer(Answer(201, {}, body), pod_name="other").disposition is UNAVAILABLE
    nameless = classify_answer(Answer(201, {}, b'{"kind":"Pod","metadata":{"uid":"u"}}'), pod_name="p")
    assert (nameless.disposition, nameless.pod_name) == (Disposition.PLACED, "p")


def test_retry_after_in_either_case():
    assert retry_after_s({"retry-after": "7"}) == 7
    assert retry_after_s({"Retry-After": "7"}) == 7
    assert retry_after_s({}) is None
