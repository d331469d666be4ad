"""Certificate, key and certificate authorities of SIP over TLS: read from their files, checked, and passed to PJSIP
from memory, because the files may be replaced at any time."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from config.clock import utc_now
from config.errors import StartupError
from sipcore.settings import TlsFiles

log = structlog.get_logger(__name__)

EXPIRES_SOON_DAYS: Final = 14
"""A certificate that expires in fewer days is warned of."""


class UnusableTlsFile(StartupError):
    """A PEM file of SIP over TLS that cannot be used; the message is one line that names the setting and the file."""


@dataclass(frozen=True)
class TlsIdentity:
    """The content of the PEM files. Without a certificate TLS is used for outbound connections only, without a client
    certificate."""

    chain: bytes = b""
    key: bytes = b""
    authorities: bytes = b""
    names: tuple[str, ...] = ()
    expires_at: datetime | None = None

    def __repr__(self) -> str:
        return f"TlsIdentity(names={self.names!r}, ends={self.expires_at!r})"

    def days_left(self, now: datetime) -> int | None:
        """Whole days until the certificate expires, negative afterwards; None without one."""
        return None if self.expires_at is None else (self.expires_at - now).days


def read_identity(files: TlsFiles) -> TlsIdentity:
    """Read and check the files. Raises `UnusableTlsFile`."""
    authorities = _read("tls_ca", files.authorities)
    if files.authorities:
        _certificates("tls_ca", files.authorities, authorities)
    if files.certificate is None or files.key is None:
        return TlsIdentity(authorities=authorities)
    chain, key = _read("tls_cert", files.certificate), _read("tls_key", files.key)
    own = _certificates("tls_cert", files.certificate, chain)[0]
    _check_key(files, key, own)
    identity = TlsIdentity(chain, key, authorities, _names(own), own.not_valid_after_utc)
    _check_loadable(files, identity)
    return identity


class InMemoryPem:
    """An identity as files in memory, which no other process can open and which are never on a disk. `close` frees
    them."""

    def __init__(self, identity: TlsIdentity) -> None:
        self._handles = [_memory_file(content) for content in (identity.chain, identity.key, identity.authorities)]

    @property
    def paths(self) -> tuple[str, str, str]:
        """Paths of the certificate chain, the key and the authorities; "" for a missing one."""
        chain, key, authorities = ("" if each is None else f"/proc/self/fd/{each}" for each in self._handles)
        return chain, key, authorities

    def close(self) -> None:
        """Free the memory; readers that have read the files are not affected. Idempotent."""
        for handle in self._handles:
            if handle is not None:
                os.close(handle)
        self._handles = [None, None, None]


def system_authorities() -> str:
    """The folder of the system's trusted certificate authorities; "" without one."""
    folder = ssl.get_default_verify_paths().capath
    return folder or ""


def log_expiry(identity: TlsIdentity) -> None:
    """Warn of a certificate that expires soon or has expired."""
    left = identity.days_left(utc_now())
    if left is not None and left < 0:
        log.warning("sip.certificate_expired", names=identity.names, days_ago=-left)
    elif left is not None and left < EXPIRES_SOON_DAYS:
        log.warning("sip.certificate_expires_soon", names=identity.names, days_left=left)


def _memory_file(content: bytes) -> int | None:
    if not content:
        return None
    handle = os.memfd_create("trunkline-tls")
    with open(handle, "wb", closefd=False) as file:
        file.write(content)
    return handle


def _read(setting: str, path: Path | None) -> bytes:
    if path is None:
        return b""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnusableTlsFile(f"sip.{setting} {path} cannot be read: {error.strerror}") from error


def _certificates(setting: str, path: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise UnusableTlsFile(f"sip.{setting} {path} holds no certificate in PEM form") from error


def _check_key(files: TlsFiles, content: bytes, own: x509.Certificate) -> None:
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError as error:
        raise UnusableTlsFile(f"sip.tls_key {files.key} has a passphrase: write the key without one") from error
    except ValueError as error:
        raise UnusableTlsFile(f"sip.tls_key {files.key} holds no private key in PEM form") from error
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if key.public_key().public_bytes(*form) != own.public_key().public_bytes(*form):
        raise UnusableTlsFile(f"sip.tls_key {files.key} is not the key of the first certificate in {files.certificate}")


def _check_loadable(files: TlsFiles, identity: TlsIdentity) -> None:
    """Load the chain and key with OpenSSL, which refuses weak keys for example."""
    memory = InMemoryPem(identity)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*memory.paths[:2])
    except ssl.SSLError as error:
        raise UnusableTlsFile(f"sip.tls_cert {files.certificate} is refused by OpenSSL: {error.reason}") from error
    finally:
        memory.close()


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Host names and addresses of a certificate."""
    try:
        alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        common_names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return tuple(str(each.value) for each in common_names)
    addresses = (str(each) for each in alternative_names.get_values_for_type(x509.IPAddress))
    return (*alternative_names.get_values_for_type(x509.DNSName), *addresses)
