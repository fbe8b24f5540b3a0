"""Connections that fail, over real TLS (R1, R3, R17; C55–C76)."""

import asyncio
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatcher.rules import Disposition
from tests.faults import transport
from tests.faults.answers import accepts_all, created, http, says
from tests.faults.certificates import server_context
from tests.faults.client import Client, write_kubeconfig
from tests.faults.server import FaultServer, Peer, Script
from tests.unit.conftest import TlsFiles

UNAVAILABLE, REJECTED, PLACED = Disposition.UNAVAILABLE, Disposition.REJECTED, Disposition.PLACED
DEADLINE_S = 1.0
"""Of the faults that only a deadline ends; the others get `PATIENCE_S`, whatever the machine is busy with."""
PATIENCE_S = 20.0
SLOW = "deadline exceeded after 1s"
A_GOOD_ANSWER = 900
"""Bytes of a created Pod's head and about half of its body."""

BEFORE_THE_REQUEST: dict[str, tuple[Script, str]] = {
    "reset at accept": (transport.reset_at_accept, "connection reset"),
    "FIN at accept": (transport.fin_at_accept, "connection reset"),
    "C68 plain HTTP peer": (transport.plain_http_peer, "TLS handshake failed"),
    "C72 SSH banner": (transport.ssh_banner, "TLS handshake failed"),
    "C68 handshake ends in FIN": (transport.handshake_fin, "connection reset"),
    "C68 handshake ends in RST": (transport.handshake_reset, "connection reset"),
    "C68 handshake ends in an alert": (transport.handshake_alert, "TLS handshake failed"),
    "handshake hangs": (transport.handshake_hangs, SLOW),
    "handshake drips": (transport.handshake_drips, SLOW),
}
AROUND_THE_REQUEST: dict[str, tuple[Script, str]] = {
    "FIN after the handshake": (transport.fin_after_handshake, "connection"),
    "RST after the handshake": (transport.reset_after_handshake, "connection"),
    "C60 FIN after the request": (transport.fin_after_request, "connection closed before the answer"),
    "C60 C76 RST after the request": (transport.reset_after_request, "connection reset"),
    "C76 silence after the request": (transport.silence_after_request, SLOW),
    "damaged TLS record": (transport.damaged_tls_record, "TLS broke off"),
    "headers cut by FIN": (transport.answer_cut_by_fin(40), "connection closed before the answer"),
    "headers cut by RST": (transport.answer_cut_by_reset(40), "connection reset"),
    "body cut by FIN": (transport.answer_cut_by_fin(A_GOOD_ANSWER), "answer cut"),
    "body cut by RST": (transport.answer_cut_by_reset(A_GOOD_ANSWER), "answer cut"),
    "chunked body cut": (transport.chunked_answer_cut, "answer cut"),
    "no last chunk": (transport.chunked_answer_without_last_chunk, "answer cut"),
    "bad chunk size": (transport.chunked_answer_with_a_bad_size, "unreadable answer"),
    "gzip that is none": (transport.gzip_that_is_none, "answer cut"),
    "gzip cut": (transport.gzip_cut, "201 without a Pod"),
    "C62 headers drip": (transport.headers_drip, SLOW),
    "C62 body drips": (transport.body_drips, SLOW),
    "body stalls": (transport.body_stalls, SLOW),
    "a refusal's body stalls": (transport.refusal_whose_body_stalls, SLOW),
    "endless 102": (transport.endless_informational, SLOW),
    "endless body": (transport.endless_body, "answer cut"),
    "request never read": (transport.request_never_read, SLOW),
    "C72 SSH banner inside TLS": (says(b"SSH-2.0-x\r\n"), "unreadable answer"),
    "C72 a header line of 64 KiB": (says(http(201, {"X": "a" * 65536})), "unreadable answer"),
    "C72 101 headers": (says(http(201, [(f"X-{n}", "y") for n in range(101)])), "201 without a Pod"),
    "C72 500 headers": (says(http(201, [(f"X-{n}", "y") for n in range(500)])), "unreadable answer"),
    "HTTP/2 frames": (says(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00"), "unreadable answer"),
    "HTTP/0.9": (says(b"<html>hello</html>"), "unreadable answer"),
    "ICY": (says(b"ICY 200 OK\r\n\r\n"), "unreadable answer"),
    "a status of letters": (says(b"HTTP/1.1 OK\r\n\r\n"), "unreadable answer"),
    "a status of four digits": (says(b"HTTP/1.1 2010 X\r\n\r\n"), "unreadable answer"),
    "two lengths": (says(http(201, [("Content-Length", "2"), ("Content-Length", "3")], "{}")), "unreadable answer"),
    "length and chunks": (
        says(http(201, [("Content-Length", "2"), ("Transfer-Encoding", "chunked")], "0\r\n\r\n")),
        "unreadable answer",
    ),
    "a negative length": (says(http(201, [("Content-Length", "-5")])), "unreadable answer"),
    "NUL in a header": (says(http(503, {"X": "\0"})), "unreadable answer"),
    "only 103": (says(http(103)), "connection closed before the answer"),
}


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Client]:
    with Client(kubeconfig, deadline_s=PATIENCE_S) as client:
        yield client


@pytest.fixture
def hasty(kubeconfig: Path) -> Iterator[Client]:
    with Client(kubeconfig, deadline_s=DEADLINE_S) as client:
        yield client


@pytest.mark.parametrize("fault", BEFORE_THE_REQUEST)
def test_R1_what_fails_before_the_request_is_unavailable_and_was_not_sent(
    fault: str, client: Client, hasty: Client, server: FaultServer
):
    script, cause = BEFORE_THE_REQUEST[fault]
    server.play(script)
    verdict = (hasty if cause == SLOW else client).create().verdict
    assert (verdict.disposition, verdict.cause, verdict.may_exist) == (UNAVAILABLE, cause, False), verdict
    assert server.requests == []


@pytest.mark.parametrize("fault", AROUND_THE_REQUEST)
def test_R1_what_fails_after_the_request_left_is_unavailable_and_ambiguous(
    fault: str, client: Client, hasty: Client, server: FaultServer
):
    script, cause = AROUND_THE_REQUEST[fault]
    server.play(script)
    verdict = (hasty if cause == SLOW else client).create().verdict
    assert (verdict.disposition, verdict.may_exist) == (UNAVAILABLE, True), verdict
    assert verdict.cause.startswith(cause), verdict
    assert len(server.posts) <= 1, "R17: no hidden retry"
    assert server.connections == 1


def test_C76_a_lost_answer_is_offered_again_under_another_name(client: Client, server: FaultServer):
    async def loses_the_first(peer: Peer) -> None:
        await peer.tls()
        request = await peer.request()
        if peer.number == 0:
            peer.reset()
        else:
            await peer.send(created(request))
            await peer.closed_by_client()

    server.play(loses_the_first)
    assert client.create().verdict.may_exist
    assert client.create().verdict.disposition is PLACED
    first, second = server.posts
    assert first.pod_name != second.pod_name


def test_C64_silence_on_an_open_connection_ends_at_the_deadline(hasty: Client, server: FaultServer):
    async def goes_silent(peer: Peer) -> None:
        await peer.tls()
        await peer.send(created(await peer.request()))
        await peer.request()
        await peer.closed_by_client()

    server.play(goes_silent)
    assert hasty.create().verdict.disposition is PLACED
    outcome, took_s = hasty.timed()
    assert (outcome.verdict.disposition, outcome.verdict.may_exist) == (UNAVAILABLE, True)
    assert DEADLINE_S - 0.05 <= took_s <= DEADLINE_S + 0.5
    assert server.connections == 1


TIMED_OUT = http(408, {"Content-Type": "text/html", "Connection": "close"}, "<h1>408 Request Time-out</h1>")


def test_C55_an_unsolicited_408_on_an_idle_connection_is_not_our_answer(client: Client, server: FaultServer):
    async def impatient(peer: Peer) -> None:
        await peer.tls()
        await peer.send(created(await peer.request()))
        if peer.number == 0:
            await peer.send(TIMED_OUT)
            await peer.close()
        await peer.closed_by_client()

    server.play(impatient)
    assert client.create().verdict.disposition is PLACED
    assert client.create().verdict.disposition is PLACED
    assert server.connections == 2


def test_C55_a_408_that_crosses_our_request_is_unavailable(client: Client, server: FaultServer):
    server.play(says(TIMED_OUT))
    verdict = client.create().verdict
    assert (verdict.disposition, verdict.cause) == (UNAVAILABLE, "408 request timeout")


def test_an_answer_to_somebody_else_is_not_ours(client: Client, server: FaultServer):
    """A desynchronised keep-alive connection: a second answer stands in the pipe before we ask again."""

    async def answers_twice(peer: Peer) -> None:
        await peer.tls()
        request = await peer.request()
        await peer.send(created(request) + (created(request) if peer.number == 0 else b""))
        await peer.closed_by_client()

    server.play(answers_twice)
    assert client.create().verdict.disposition is PLACED
    assert client.create().verdict.disposition is PLACED
    assert [request.pod_name for request in server.posts] == list(
        dict.fromkeys(request.pod_name for request in server.posts)
    )


def test_connection_refused(tls_files: TlsFiles, tmp_path: Path):
    with socket.socket() as taken:  # bound, not listening: the port is refused and nobody else can take it
        taken.bind(("127.0.0.1", 0))
        kubeconfig = write_kubeconfig(tmp_path / "k", f"https://127.0.0.1:{taken.getsockname()[1]}", tls_files.ca)
        with Client(kubeconfig) as client:
            verdict = client.create().verdict
        localhost = write_kubeconfig(tmp_path / "l", f"https://localhost:{taken.getsockname()[1]}", tls_files.ca)
        with Client(localhost) as client:
            by_name = client.create().verdict  # two addresses, both refused
    assert (verdict.disposition, verdict.cause, verdict.may_exist) == (UNAVAILABLE, "connection refused", False)
    assert (by_name.cause, by_name.may_exist) == ("connection refused", False)


@pytest.mark.parametrize(
    ("host", "cause"),
    [
        ("no-such-host.invalid", "name does not resolve"),
        ("255.255.255.255", "network unreachable"),  # refused by the kernel: no packet leaves
    ],
)
def test_C67_no_way_to_the_host(host: str, cause: str, tls_files: TlsFiles, tmp_path: Path):
    kubeconfig = write_kubeconfig(tmp_path / "k", f"https://{host}:6443", tls_files.ca)
    with Client(kubeconfig) as client:
        verdict = client.create().verdict
    assert (verdict.disposition, verdict.cause, verdict.may_exist) == (UNAVAILABLE, cause, False), verdict


@pytest.mark.parametrize("certificate", ["stranger", "wrong_host", "expired"])
def test_C68_a_certificate_that_does_not_verify_is_rejected(
    certificate: str, client: Client, server: FaultServer, tls_files: TlsFiles
):
    bad = server_context(getattr(tls_files, certificate))

    async def script(peer: Peer) -> None:
        await peer.tls(bad)
        await peer.request()

    server.play(script)
    verdict = client.create().verdict
    assert (verdict.disposition, verdict.cause) == (REJECTED, "server certificate does not verify")
    assert not verdict.may_exist
    assert server.requests == []


def test_C68_our_certificate_refused_by_the_server_is_a_handshake_that_breaks_off(
    client: Client, server: FaultServer, tls_files: TlsFiles
):
    demanding = server_context(tls_files.server, client_ca=tls_files.ca)

    async def script(peer: Peer) -> None:
        await peer.tls(demanding)
        await peer.request()

    server.play(script)
    assert client.create().verdict.disposition is UNAVAILABLE
    assert server.requests == []


def test_a_server_that_is_no_url_is_a_misconfiguration(tls_files: TlsFiles, tmp_path: Path):
    with Client(write_kubeconfig(tmp_path / "k", "https://", tls_files.ca)) as client:
        verdict = client.create().verdict
    assert (verdict.disposition, verdict.cause, verdict.may_exist) == (REJECTED, "no usable API address", False)


def test_C71_out_of_file_descriptors_is_unavailable_and_passes(client: Client, server: FaultServer):
    server.play(accepts_all())
    client.run(asyncio.sleep(0))  # the event loop itself needs descriptors
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as highest:
        lowest_free = highest.fileno()
    # Twice: the files of the credentials cannot be opened, and then (they are known by now) no socket.
    for _ in range(2):
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            verdict = client.create().verdict
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (verdict.disposition, verdict.cause) == (UNAVAILABLE, "too many open files")
        assert not verdict.may_exist
        client.run(client.executor.connection.client())
    assert client.create().verdict.disposition is PLACED
    assert len(server.posts) == 1
