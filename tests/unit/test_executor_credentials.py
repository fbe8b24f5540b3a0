"""Credentials are read anew when their files change and once after a 401 (R26); proxies; what we cannot use."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio import config

from dispatcher.executors import credentials
from dispatcher.executors.credentials import Connection
from dispatcher.rules import Disposition
from tests.faults.answers import JSON, accepts_all, answering, created, http, status
from tests.faults.certificates import server_context
from tests.faults.client import ATTEMPT, Client, write_kubeconfig
from tests.faults.server import FaultServer, Peer, Request
from tests.unit.conftest import TlsFiles

UNAVAILABLE, REJECTED, PLACED = Disposition.UNAVAILABLE, Disposition.REJECTED, Disposition.PLACED
UNAUTHORIZED = http(401, JSON, status(401, "Unauthorized", "Unauthorized"))

Start = Callable[..., Client]


@pytest.fixture
def start(fault_server: FaultServer, tls_files: TlsFiles, tmp_path: Path) -> Iterator[Start]:
    """Make a client from a kubeconfig with this user, and look at the files at every create."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(credentials, "_LOOK_EVERY_S", 0.0)
        open_clients: list[Client] = []

        def make(user: dict[str, Any] | None = None, **cluster: Any) -> Client:
            server = f"https://127.0.0.1:{fault_server.port}"
            path = write_kubeconfig(tmp_path / "kubeconfig", server, cluster.pop("ca", tls_files.ca), user, **cluster)
            client = Client(path).__enter__()
            open_clients.append(client)
            return client

        yield make
        for client in open_clients:
            client.__exit__()


def accepts(token: str) -> Callable[[Request], bytes]:
    return lambda request: (
        created(request) if request.headers.get("authorization") == f"Bearer {token}" else UNAUTHORIZED
    )


def test_R26_a_rotated_token_file_is_read(start: Start, server: FaultServer, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("old\n")
    client = start({"tokenFile": "token"})  # relative to the kubeconfig, and with the newline that editors leave
    server.play(answering(accepts("old")))
    assert client.create().verdict.disposition is PLACED
    token.write_text("newer\n")
    server.play(answering(accepts("newer")))
    assert client.create().verdict.disposition is PLACED
    assert client.create().verdict.disposition is PLACED
    assert len(server.posts) == 2


def test_R26_a_token_file_caught_empty_in_its_rotation_keeps_the_old_token(
    start: Start, server: FaultServer, tmp_path: Path
):
    token = tmp_path / "token"
    token.write_text("old")
    client = start({"tokenFile": str(token)})
    server.play(answering(accepts("old")))
    assert client.create().verdict.disposition is PLACED
    token.write_text("")
    assert client.create().verdict.disposition is PLACED


def test_R26_a_401_spends_its_attempt_and_makes_us_read_anew_once(
    start: Start, server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """C42. The file is swapped without a trace, so that only the 401 can tell: no look at files in this test."""
    monkeypatch.setattr(credentials, "_LOOK_EVERY_S", 3600.0)
    token = tmp_path / "token"
    token.write_text("old")
    client = start({"tokenFile": str(token)})
    server.play(answering(accepts("new")))
    refused = client.create().verdict
    assert (refused.disposition, refused.stale_credentials) == (REJECTED, True)
    token.write_text("new")
    assert client.create().verdict.disposition is PLACED
    assert len(server.posts) == 2, "R3: the create is not repeated by itself"


def test_R26_many_creates_refused_together_read_anew_once(start: Start, server: FaultServer, kubeconfig: Path):
    """Else every refused create under way would build a client of its own."""
    client = start()
    loads = 0
    load = config.load_kube_config

    async def counted(**arguments: Any) -> Any:
        nonlocal loads
        loads += 1
        return await load(**arguments)

    together = asyncio.Barrier(6)

    async def six() -> None:
        await asyncio.gather(*(client.executor.create(ATTEMPT) for _ in range(6)))

    async def script(peer: Peer) -> None:
        await peer.tls()
        await peer.request()
        await together.wait()
        await peer.send(UNAUTHORIZED)
        while True:
            await peer.send(created(await peer.request()))

    server.play(script)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "load_kube_config", counted)
        patch.setattr(credentials, "_LOOK_EVERY_S", 3600.0)
        client.run(six())
        assert loads == 1
        server.play(accepts_all())
        assert client.create().verdict.disposition is PLACED
        assert client.create().verdict.disposition is PLACED
    assert loads == 2


def test_R26_a_rotated_CA_is_read(start: Start, server: FaultServer, tls_files: TlsFiles, tmp_path: Path):
    ca = tmp_path / "ca.pem"
    ca.write_bytes(tls_files.stranger.read_bytes())  # a bundle that knows nothing of our server
    client = start(ca=ca)
    server.play(accepts_all())
    verdict = client.create().verdict
    assert (verdict.disposition, verdict.cause) == (REJECTED, "server certificate does not verify")
    ca.write_bytes(tls_files.ca.read_bytes())
    assert client.create().verdict.disposition is PLACED


def test_R26_a_rotated_client_certificate_is_read(
    start: Start, server: FaultServer, tls_files: TlsFiles, tmp_path: Path
):
    demanding = server_context(tls_files.server, client_ca=tls_files.ca)
    mine = tmp_path / "client.pem"
    mine.write_bytes(tls_files.stranger.read_bytes())  # of a CA that the server does not know
    client = start({"client-certificate": str(mine), "client-key": str(mine)})

    async def script(peer: Peer) -> None:
        await peer.tls(demanding)
        while True:
            await peer.send(created(await peer.request()))

    server.play(script)
    assert client.create().verdict.disposition is UNAVAILABLE
    mine.write_bytes(tls_files.client.read_bytes())
    assert client.create().verdict.disposition is PLACED


def test_R26_a_half_written_certificate_keeps_the_old_client(
    start: Start, server: FaultServer, tls_files: TlsFiles, tmp_path: Path
):
    ca = tmp_path / "ca.pem"
    ca.write_bytes(tls_files.ca.read_bytes())
    client = start(ca=ca)
    server.play(accepts_all())
    assert client.create().verdict.disposition is PLACED
    ca.write_bytes(tls_files.ca.read_bytes()[:100])
    assert client.create().verdict.disposition is PLACED
    ca.write_bytes(tls_files.ca.read_bytes())
    assert client.create().verdict.disposition is PLACED


def test_R26_files_that_do_not_change_are_read_once(start: Start, server: FaultServer):
    client = start()
    server.play(accepts_all())
    for _ in range(3):
        assert client.create().verdict.disposition is PLACED
    assert server.connections == 1


def test_a_replaced_client_finishes_its_creates_and_is_closed(start: Start, server: FaultServer):
    client = start()
    server.play(accepts_all())

    async def replace_twice() -> None:
        connection = Connection(client.kubeconfig, connections=1, retire_s=0.05)
        first = await connection.client()
        await connection.read_anew()
        second = await connection.client()
        assert first is not second
        await connection.read_anew(first)  # a late 401 of the old one
        assert await connection.client() is second
        session = first.rest_client._create_pool_manager()
        first.rest_client.pool_manager = session
        await asyncio.gather(*connection._retired)
        assert session.closed
        await connection.read_anew()
        await connection.client()
        await connection.close()  # with one still retiring: closed at once, nothing left behind

    client.run(asyncio.wait_for(replace_twice(), 5))


@pytest.mark.parametrize(
    "content", ["", "not: a kubeconfig", "{", "\0", "current-context: x\ncontexts: []\nclusters: []\nusers: []\n"]
)
def test_R3_a_kubeconfig_that_cannot_be_used_is_rejected_and_says_which(content: str, tmp_path: Path):
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with Client(path) as client:
        verdict = client.create().verdict
    assert (verdict.disposition, verdict.cause, verdict.may_exist) == (REJECTED, "no usable credentials", False)
    assert str(path) in verdict.detail


def test_R3_a_missing_kubeconfig_is_rejected_and_then_found(
    start: Start, server: FaultServer, tls_files: TlsFiles, tmp_path: Path
):
    path = tmp_path / "later"
    server.play(accepts_all())
    with Client(path) as client:
        assert client.create().verdict.cause == "no usable credentials"
        write_kubeconfig(path, f"https://127.0.0.1:{server.port}", tls_files.ca)
        assert client.create().verdict.disposition is PLACED


def test_R3_outside_a_cluster_and_without_a_kubeconfig(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with Client(None) as client:
        verdict = client.create().verdict
    assert (verdict.disposition, verdict.cause) == (REJECTED, "no usable credentials")
    assert "in-cluster" in verdict.detail


def test_R26_in_a_cluster_the_service_account_is_read_anew(
    start: Start, server: FaultServer, tls_files: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("old\n")
    ca.write_bytes(tls_files.ca.read_bytes())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setattr(credentials, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr("kubernetes.aio.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.aio.config.incluster_config.SERVICE_CERT_FILENAME", str(ca))

    def accepts_service_account(word: str) -> Callable[[Request], bytes]:
        return lambda request: (
            created(request) if request.headers["authorization"].lower() == f"bearer {word}" else UNAUTHORIZED
        )

    server.play(answering(accepts_service_account("old")))
    with Client(None) as client:
        assert client.create().verdict.disposition is PLACED
        token.write_text("newer\n")
        server.play(answering(accepts_service_account("newer")))
        assert client.create().verdict.disposition is PLACED


def test_a_netrc_of_the_user_does_not_touch_our_requests(
    start: Start, server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server.play(answering(accepts("a-token")))
    assert start().create().verdict.disposition is PLACED


# Forward proxies (C56).


def tunnel(answer: bytes | None) -> Callable[[Peer], Any]:
    """A forward proxy: refuses CONNECT with this answer, or ends it with a reset."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        assert request.method == "CONNECT"
        if answer is None:
            peer.reset()
        else:
            await peer.send(answer)
            await peer.close()

    return script


PROXY_ANSWERS: dict[str, tuple[bytes | None, str]] = {
    "403": (http(403, {}, "Forbidden"), "proxy refused the tunnel (403)"),
    "407": (http(407, {"Proxy-Authenticate": "Basic"}, ""), "proxy refused the tunnel (407)"),
    "502": (http(502, {}, "no route"), "proxy refused the tunnel (502)"),
    "garbage": (b"SSH-2.0-x\r\n", "unreadable answer"),
    "reset": (None, "connection"),
    "FIN": (b"", "connection"),
}


@pytest.mark.parametrize("by", ["kubeconfig", "environment"])
@pytest.mark.parametrize("answer", PROXY_ANSWERS)
def test_C56_a_proxy_that_refuses_the_tunnel_is_unavailable_and_nothing_was_sent(
    answer: str, by: str, start: Start, server: FaultServer, monkeypatch: pytest.MonkeyPatch
):
    data, cause = PROXY_ANSWERS[answer]
    proxy = f"http://127.0.0.1:{server.port}"
    server.play(tunnel(data))
    if by == "kubeconfig":
        client = start(**{"proxy-url": proxy})
    else:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        client = start()
    verdict = client.create().verdict
    assert (verdict.disposition, verdict.may_exist) == (UNAVAILABLE, False), verdict
    assert verdict.cause.startswith(cause), verdict
    assert [request.method for request in server.requests] == ["CONNECT"]


def test_C56_through_a_proxy_that_tunnels(start: Start, server: FaultServer):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await peer.tls()  # the proxy and the API in one: what comes through the tunnel
        await peer.send(created(await peer.request()))
        await peer.closed_by_client()

    server.play(script)
    client = start(**{"proxy-url": f"http://127.0.0.1:{server.port}"})
    assert client.create().verdict.disposition is PLACED
    assert [request.method for request in server.requests] == ["CONNECT", "POST"]


def test_C56_no_proxy_is_honoured(start: Start, server: FaultServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server.play(accepts_all())
    assert start().create().verdict.disposition is PLACED


def test_C56_a_proxy_that_is_down_is_unavailable(start: Start):
    verdict = start(**{"proxy-url": "http://127.0.0.1:9"}).create().verdict
    assert (verdict.disposition, verdict.cause, verdict.may_exist) == (UNAVAILABLE, "connection refused", False)
