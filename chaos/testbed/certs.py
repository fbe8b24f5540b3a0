"""Certificates of one testbed: a CA, the servers' certificates for 127.0.0.1, and one client certificate an identity.

Made with `cryptography`; the extended key usage is deliberately not critical, because Go refuses a client
certificate with a critical one ("unhandled critical extension"). Keys are ECDSA P-256: made in a millisecond.
"""

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=30)  # a testbed that is held open by `make up` over a holiday still works


@dataclass(frozen=True)
class KeyPair:
    """Paths of a PEM certificate and of its PEM private key (mode 0600)."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority whose files lie in `directory`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rideout-testbed")])
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pair = self._write("ca", certificate, self._key)

    def server(self, name: str) -> KeyPair:
        """A certificate for a server on 127.0.0.1, localhost and the in-cluster names of the apiserver."""
        names: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.DNSName("localhost"),
            x509.DNSName("kubernetes.default.svc"),
        ]
        return self._issue(name, name, [], ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, name: str, user: str, groups: list[str]) -> KeyPair:
        """A client certificate: Kubernetes reads the user from CN and the groups from O."""
        return self._issue(name, user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def signing_key(self, name: str) -> KeyPair:
        """A bare key pair (for ServiceAccount tokens); `certificate` holds the public key."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = self._directory / f"{name}.pub"
        public.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        return KeyPair(public, self._write_key(name, key))

    def _issue(
        self, name: str, common: str, groups: list[str], usage: x509.ObjectIdentifier, names: list[x509.GeneralName]
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
            + [x509.NameAttribute(NameOID.COMMON_NAME, common)]
        )
        builder = (
            _builder(subject, self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return self._write(name, builder.sign(self._key, hashes.SHA256()), key)

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
        path = self._directory / f"{name}.crt"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return KeyPair(path, self._write_key(name, key))

    def _write_key(self, name: str, key: ec.EllipticCurvePrivateKey) -> Path:
        path = self._directory / f"{name}.key"
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
        return path


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A minute back: the clock of a virtual machine may step while a testbed starts.
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + VALID)
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign,
        crl_sign=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
