"""Fixtures of the tests that need an API to fail: one fault server and its certificates for the session."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.certificates import Authority, server_context
from tests.faults.client import Client, write_kubeconfig
from tests.faults.server import FaultServer


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Good and bad certificates, as files."""

    authority: Authority
    ca: Path
    server: Path
    stranger: Path
    """A server certificate of a CA that the client does not trust."""
    wrong_host: Path
    expired: Path
    client: Path


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority.make("rideout test CA")
    here = ["localhost", "127.0.0.1"]
    contents = {
        "ca": authority.pem,
        "server": authority.issue("kube-apiserver", here),
        "stranger": Authority.make("another CA").issue("kube-apiserver", here),
        "wrong_host": authority.issue("kube-apiserver", ["elsewhere.example.test"]),
        "expired": authority.issue("kube-apiserver", here, expired=True),
        "client": authority.issue("dispatcher", [], client=True),
    }
    files = {name: folder / f"{name}.pem" for name in contents}
    for name, content in contents.items():
        files[name].write_bytes(content)
    return TlsFiles(authority, **files)


@pytest.fixture(scope="session")
def fault_server(tls_files: TlsFiles) -> Iterator[FaultServer]:
    with FaultServer(server_context(tls_files.server)) as server:
        yield server


@pytest.fixture
def server(fault_server: FaultServer) -> Iterator[FaultServer]:
    """The fault server; after the test its scripts must not have stumbled themselves."""
    yield fault_server
    stumbled = list(fault_server.unexpected)
    fault_server.play(None)
    assert not stumbled, f"the test's own script failed: {stumbled!r}"


@pytest.fixture
def kubeconfig(fault_server: FaultServer, tls_files: TlsFiles, tmp_path: Path) -> Path:
    return write_kubeconfig(tmp_path / "kubeconfig", f"https://127.0.0.1:{fault_server.port}", tls_files.ca)


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Client]:
    """The real executor against the fault server."""
    with Client(kubeconfig) as client:
        yield client
