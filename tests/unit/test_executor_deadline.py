"""One total deadline over every phase of a create, kept within half a second (R1)."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.executors.kubernetes import KubernetesExecutor
from dispatcher.executors.limiter import RateLimiter
from dispatcher.rules import Disposition, Outcome
from tests.faults import transport
from tests.faults.answers import accepts_all
from tests.faults.client import ATTEMPT, Client, write_kubeconfig
from tests.faults.server import BlackHole, FaultServer, Peer, Script
from tests.unit.conftest import TlsFiles

DEADLINE_S = 0.4
TOLERANCE_S = 0.5

PHASES: dict[str, Script] = {
    "TLS: nothing": transport.handshake_hangs,
    "TLS: a byte now and then": transport.handshake_drips,
    "request: never read": transport.request_never_read,
    "headers: nothing": transport.silence_after_request,
    "headers: a byte now and then": transport.headers_drip,
    "headers: informational ones for ever": transport.endless_informational,
    "body: a byte now and then": transport.body_drips,
    "body: nothing more": transport.body_stalls,
}


async def _timed(executor: KubernetesExecutor) -> tuple[Outcome, float, float]:
    """An outcome, how long it took, and how late a plain timer of the deadline's length was on this machine."""

    async def control() -> float:
        began = time.monotonic()
        await asyncio.sleep(DEADLINE_S)
        return time.monotonic() - began - DEADLINE_S

    lateness = asyncio.create_task(control())
    began = time.monotonic()
    outcome = await executor.create(ATTEMPT)
    took_s = time.monotonic() - began
    return outcome, took_s, await lateness


def _assert_kept(client: Client, *, may_exist: bool | None) -> None:
    outcome, took_s, lateness_s = client.run(_timed(client.executor))
    assert outcome.verdict.disposition is Disposition.UNAVAILABLE
    assert outcome.verdict.cause == f"deadline exceeded after {DEADLINE_S:g}s"
    if may_exist is not None:
        assert outcome.verdict.may_exist is may_exist
    assert DEADLINE_S - 0.02 <= took_s <= DEADLINE_S + TOLERANCE_S + lateness_s
    assert (outcome.ended_at - outcome.started_at).total_seconds() == pytest.approx(took_s, abs=0.1)


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Client]:
    with Client(kubeconfig, deadline_s=DEADLINE_S) as client:
        yield client


@pytest.mark.parametrize("phase", PHASES)
def test_R1_the_deadline_is_kept_in_every_phase(phase: str, client: Client, server: FaultServer):
    server.play(PHASES[phase])
    _assert_kept(client, may_exist=not phase.startswith("TLS"))


def test_R1_the_deadline_covers_a_connect_that_hangs(tls_files: TlsFiles, tmp_path: Path):
    with BlackHole() as port:
        kubeconfig = write_kubeconfig(tmp_path / "k", f"https://127.0.0.1:{port}", tls_files.ca)
        with Client(kubeconfig, deadline_s=DEADLINE_S) as client:
            _assert_kept(client, may_exist=False)


def test_R1_the_deadline_covers_a_name_that_does_not_answer(
    tls_files: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The resolver's thread cannot be cancelled: the create must not wait for it."""

    def hangs(*_: object, **__: object) -> list[object]:
        time.sleep(2 * DEADLINE_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    kubeconfig = write_kubeconfig(tmp_path / "k", "https://api.example.test:6443", tls_files.ca)
    with Client(kubeconfig, deadline_s=DEADLINE_S) as client:
        _assert_kept(client, may_exist=False)


def test_R1_the_deadline_covers_the_wait_for_a_connection_of_the_pool(kubeconfig: Path, server: FaultServer):
    server.play(transport.silence_after_request)
    with Client(kubeconfig, deadline_s=DEADLINE_S, connections=1) as client:

        async def two() -> list[tuple[Outcome, float, float]]:
            return list(await asyncio.gather(_timed(client.executor), _timed(client.executor)))

        for outcome, took_s, lateness_s in client.run(two()):
            assert outcome.verdict.disposition is Disposition.UNAVAILABLE
            assert took_s <= DEADLINE_S + TOLERANCE_S + lateness_s


def test_R1_the_deadline_covers_credentials_that_take_their_time(client: Client, monkeypatch: pytest.MonkeyPatch):
    """A credential plugin that hangs, for one."""

    async def hangs(**_: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr("dispatcher.executors.credentials.config.load_kube_config", hangs)
    _assert_kept(client, may_exist=False)


def test_C38_the_wait_for_the_limiter_lies_outside_the_deadline(kubeconfig: Path, server: FaultServer):
    """400 ms of waiting, then a create that has its whole deadline, and a start that says so (R1, R4)."""
    server.play(accepts_all())
    limiter = RateLimiter(rate=2.5, burst=1, max_wait_s=2)
    with Client(kubeconfig, deadline_s=DEADLINE_S, limiter=limiter) as client:
        first, second = client.create(), client.create()
    assert (first.verdict.disposition, second.verdict.disposition) == (Disposition.PLACED, Disposition.PLACED)
    assert (second.started_at - first.started_at).total_seconds() >= 0.35


def test_R1_the_server_is_told_to_give_up_a_little_earlier(client: Client, server: FaultServer):
    server.play(accepts_all())
    client.create()
    assert server.posts[0].path == "/api/v1/namespaces/tasks/pods?fieldManager=rideout&timeout=380ms"


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
def test_a_large_request_that_is_not_read_is_answered_all_the_same(kubeconfig: Path, server: FaultServer):
    """413 from a proxy that does not read on: the answer counts, not the body that could not leave."""

    async def too_large(peer: Peer) -> None:
        await peer.tls()
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        await answered.wait()
        peer.reset()
        gone.set()

    answered, gone = asyncio.Event(), threading.Event()
    server.play(too_large)
    spec = {**ATTEMPT.spec, "env": {f"V{n}": "x" * 100_000 for n in range(80)}}
    with Client(kubeconfig, deadline_s=10) as client:
        verdict = client.create(replace(ATTEMPT, spec=spec)).verdict
        server.call(answered.set)
        assert gone.wait(10)
    assert (verdict.disposition, verdict.cause) == (Disposition.REJECTED, "413")
