"""Certificates: what Go and Python both accept, and nothing for the wrong purpose."""

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509

from chaos.testbed.certs import Authority, KeyPair


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certs") / "pki")


def shake_hands(authority: Authority, server: KeyPair, client: KeyPair, name: str) -> None:
    """A TLS handshake in which each side verifies the other strictly."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server.certificate, server.key)
    serving.load_verify_locations(authority.pair.certificate)
    serving.verify_mode = ssl.CERT_REQUIRED
    serving.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    calling = ssl.create_default_context(cafile=str(authority.pair.certificate))
    calling.verify_flags |= ssl.VERIFY_X509_STRICT
    calling.load_cert_chain(client.certificate, client.key)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with serving.wrap_socket(theirs, server_side=True) as connection:
                connection.recv(1)
                connection.sendall(b"y")
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with calling.wrap_socket(ours, server_hostname=name) as connection:
            connection.sendall(b"x")
            if connection.recv(1) != b"y":
                raise ConnectionError("refused by the server")
    finally:
        ours.close()
        thread.join(10)


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_proxied_client_verifies_the_server_by_address(authority: Authority, tmp_path: Path, name: str):
    server = authority.server(f"api-{name}")
    client = authority.client(f"client-{name}", "rideout:dispatcher", ["rideout:dispatchers"])
    shake_hands(authority, server, client, name)


def test_another_name_is_refused(authority: Authority):
    server, client = authority.server("api-other"), authority.client("c-other", "u", [])
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(authority, server, client, "example.org")


def test_a_server_certificate_is_no_client(authority: Authority):
    server = authority.server("api-twice")
    with pytest.raises(OSError):
        shake_hands(authority, server, server, "127.0.0.1")


def test_usages_are_not_critical_and_the_subject_is_kubernetes_own(authority: Authority):
    """Go refuses a critical extended key usage it does not handle."""
    pair = authority.client("subject", "rideout:probe", ["rideout:probes", "second"])
    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    assert not certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).critical
    names = [(part.oid._name, part.value) for part in certificate.subject]
    assert names == [
        ("organizationName", "rideout:probes"),
        ("organizationName", "second"),
        ("commonName", "rideout:probe"),
    ]


def test_keys_are_private(authority: Authority):
    assert stat.S_IMODE(authority.pair.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(authority.pair.key.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(authority.signing_key("accounts").key.stat().st_mode) == 0o600
