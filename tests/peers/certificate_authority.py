"""A certificate authority for tests, and certificates signed by it, as PEM files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from sipcore.settings import TlsFiles


class Authority:
    """A certificate authority: `root` is the file of its certificate; the certificates that it signs are written to
    `folder`."""

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.root = folder / "root.pem"
        ca = x509.BasicConstraints(ca=True, path_length=None)
        self.root.write_bytes(self._signed(self._name, self._key, ca, [], (-1, 365)).public_bytes(Encoding.PEM))

    def files(
        self,
        *names: str,
        days: tuple[float, float] = (-1, 365),
        file: str = "server",
        key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
    ) -> TlsFiles:
        """Writes a certificate for host names and addresses, and its key, which is new unless given. `days`: the first
        and the last day of its validity, relative to now. Returns both files and the root to trust."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
        leaf = self._signed(subject, key, x509.BasicConstraints(ca=False, path_length=None), list(names), days)
        certificate, secret = self._folder / f"{file}.pem", self._folder / f"{file}.key"
        certificate.write_bytes(leaf.public_bytes(Encoding.PEM))
        secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return TlsFiles(certificate, secret, self.root)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
        constraints: x509.BasicConstraints,
        names: list[str],
        days: tuple[float, float],
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
            .add_extension(constraints, critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
        return builder.sign(self._key, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
