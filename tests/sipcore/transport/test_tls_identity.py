"""The PEM files of SIP over TLS are checked before they are used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from structlog.testing import capture_logs

from config.clock import utc_now
from sipcore.settings import TlsFiles
from sipcore.transport.tls_identity import InMemoryPem, UnusableTlsFile, log_expiry, read_identity
from tests.peers.certificate_authority import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_identity_has_names_and_expiry_of_the_certificate(authority: Authority) -> None:
    identity = read_identity(authority.files("pbx.example.test", "192.0.2.7", "2001:db8::7", days=(-1, 57.5)))
    assert identity.names == ("pbx.example.test", "192.0.2.7", "2001:db8::7")
    assert identity.days_left(utc_now()) == 57


def test_identity_without_files_is_empty() -> None:
    identity = read_identity(TlsFiles())
    assert (identity.chain, identity.names, identity.days_left(utc_now())) == (b"", (), None)


def with_passphrase(files: TlsFiles) -> None:
    assert files.key
    key = load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))


def with_a_folder(files: TlsFiles) -> None:
    assert files.key
    files.key.unlink()
    files.key.mkdir()


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda files: os.remove(files.certificate), r"sip\.tls_cert .*server\.pem cannot be read: No such file"),
        (lambda files: os.remove(files.key), r"sip\.tls_key .*server\.key cannot be read: No such file"),
        (lambda files: os.remove(files.authorities), r"sip\.tls_ca .*root\.pem cannot be read: No such file"),
        (with_a_folder, r"sip\.tls_key .*server\.key cannot be read: Is a directory"),
        (lambda files: files.certificate.write_text("x"), r"sip\.tls_cert .* holds no certificate in PEM form"),
        (lambda files: files.authorities.write_text(""), r"sip\.tls_ca .* holds no certificate in PEM form"),
        (lambda files: files.key.write_text("x"), r"sip\.tls_key .* holds no private key in PEM form"),
        (
            lambda files: files.key.write_bytes(files.certificate.read_bytes()),
            r"sip\.tls_key .* holds no private key in PEM form",
        ),
        (with_passphrase, r"sip\.tls_key .* has a passphrase: write the key without one"),
    ],
)  # fmt: skip
def test_unusable_file_raises_with_its_name_and_setting(authority: Authority, spoil: object, complaint: str) -> None:
    files = authority.files("localhost")
    assert callable(spoil)
    spoil(files)
    with pytest.raises(UnusableTlsFile, match=f"^{complaint}") as error:
        read_identity(files)
    assert "\n" not in str(error.value)


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    files, others = authority.files("localhost"), authority.files("localhost", file="other")
    with pytest.raises(UnusableTlsFile, match=r"other\.key is not the key of the first certificate in .*server\.pem$"):
        read_identity(TlsFiles(files.certificate, others.key))


def test_key_that_openssl_rejects_as_weak_is_rejected(authority: Authority) -> None:
    files = authority.files("localhost", key=rsa.generate_private_key(65537, 1024))
    with pytest.raises(UnusableTlsFile, match=r"server\.pem is refused by OpenSSL: EE_KEY_TOO_SMALL$"):
        read_identity(files)


def test_key_is_in_no_repr(authority: Authority) -> None:
    identity = read_identity(authority.files("localhost"))
    assert "BEGIN" not in repr(identity)


@pytest.mark.parametrize(
    ("days", "event"),
    [(-3.0, "sip.certificate_expired"), (13.5, "sip.certificate_expires_soon"), (15.0, None)],
)
def test_expiring_certificate_is_warned_of(authority: Authority, days: float, event: str | None) -> None:
    identity = read_identity(authority.files("localhost", days=(-10, days)))
    with capture_logs() as logs:
        log_expiry(identity)
    assert [line["event"] for line in logs] == ([event] if event else [])


def test_in_memory_pem_outlasts_the_files_until_close(authority: Authority) -> None:
    files = authority.files("localhost")
    memory = InMemoryPem(read_identity(files))
    assert files.certificate and files.key
    written = files.certificate.read_bytes()
    files.certificate.write_text("half a certif")
    chain, key, _ = memory.paths
    assert Path(chain).read_bytes() == written
    assert Path(key).read_bytes() == files.key.read_bytes()
    memory.close()
    memory.close()
    with pytest.raises(OSError, match="No such file"):
        Path(chain).read_bytes()


def test_stat_signature_changes_with_any_of_the_files(authority: Authority) -> None:
    files = authority.files("localhost")
    stamp = files.stat_signature()
    assert files.stat_signature() == stamp
    assert files.key
    os.utime(files.key, ns=(0, 0))
    changed = files.stat_signature()
    assert changed != stamp
    files.key.unlink()
    assert files.stat_signature() != changed
