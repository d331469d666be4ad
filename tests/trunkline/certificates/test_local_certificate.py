"""The local authority: what it certifies, when its certificate is renewed, and who may read its files."""

from __future__ import annotations

import os
import ssl
import stat
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from config.errors import StartupError
from config.settings import Settings
from trunkline.certificates import local_certificate, names
from trunkline.certificates.authority import issue, new_authority, permitted_names
from trunkline.certificates.local_certificate import ensure
from trunkline.certificates.names import CertificateNames, machine_names, parse_names

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
NONE = CertificateNames((), ())


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of a machine that is called voicebox.example.com."""
    addresses = ["127.0.0.1", "::1", "192.168.1.7", "fe80::1", "fd00::7", "2001:db8::7", "203.0.113.7"]
    monkeypatch.setattr(names, "own_addresses", lambda: frozenset(addresses))
    monkeypatch.setattr("socket.gethostname", lambda: "Voicebox.example.com")
    return addresses


def settings_of(folder: Path, **api: object) -> Settings:
    return Settings(data_dir=folder).with_changes({"api": {"https_port": 8443, **api}})


def test_a_certificate_is_for_the_names_and_addresses_that_the_api_listens_on(tmp_path: Path) -> None:
    found = machine_names(settings_of(tmp_path, public_url="https://voice.example.net"), NONE)
    expected = {"voice.example.net", "localhost", "voicebox.example.com", "voicebox", "voicebox.local"}
    assert set(found.hosts) == expected
    assert set(map(str, found.addresses)) == {
        "127.0.0.1", "::1", "192.168.1.7", "fd00::7", "2001:db8::7", "203.0.113.7",
    }  # fmt: skip
    only = machine_names(settings_of(tmp_path, host="127.0.0.1"), parse_names(["voice.lan", "10.0.0.1"]))
    assert set(map(str, only.addresses)) == {"127.0.0.1", "10.0.0.1"}
    assert only.hosts[0] == "voice.lan"


@pytest.mark.parametrize("text", ["", "a b", "*.lan", "-x", "http://x", "1.2.3.400", "x" * 64])
def test_a_name_that_is_neither_a_host_name_nor_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        parse_names([text])


def test_the_authority_certifies_private_names_and_those_of_the_machine_only(tmp_path: Path) -> None:
    authority = new_authority(machine_names(settings_of(tmp_path), NONE), "voicebox", NOW)
    asked = parse_names(
        ["other.local", "nas.lan", "x.voicebox.example.com", "example.com", "evil-voicebox.example.com", "bank.example",
         "10.9.9.9", "fd12::1", "2001:db8::9", "203.0.113.7", "203.0.113.8", "2001:db8:1::1"]
    )  # fmt: skip
    permitted = permitted_names(authority, asked)
    assert permitted.hosts == ("other.local", "nas.lan", "x.voicebox.example.com")
    assert [*map(str, permitted.addresses)] == ["10.9.9.9", "fd12::1", "2001:db8::9", "203.0.113.7"]


@pytest.mark.parametrize(
    ("name", "trusted"), [("x.local", True), ("192.168.9.9", True), ("bank.example", False), ("198.51.100.1", False)]
)
def test_a_client_refuses_what_a_stolen_authority_issues_for_others(tmp_path: Path, name: str, trusted: bool) -> None:
    now = datetime.now(UTC)
    authority = new_authority(machine_names(settings_of(tmp_path), NONE), "voicebox", now)
    stolen = issue(authority, parse_names([name]), now)
    (tmp_path / "stolen.pem").write_bytes(stolen.to_pem())
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "stolen.pem")
    (tmp_path / "ca.pem").write_bytes(authority.to_pem())
    client = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    if trusted:
        handshake(client, server, name)
    else:
        with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
            handshake(client, server, name)


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """A TLS handshake in memory. Raises what the client raises."""
    upward, downward = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(downward, upward, server_hostname=name)
    callee = server.wrap_bio(upward, downward, server_side=True)
    for _ in range(5):
        for side in (caller, callee):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_the_certificate_is_kept_and_only_the_owner_reads_its_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        first = ensure(settings_of(tmp_path), NOW)
    finally:
        os.umask(before)
    again = ensure(settings_of(tmp_path), NOW + timedelta(days=10))
    assert (first.renewed, again.renewed) == (True, False)
    assert again.server.certificate == first.server.certificate
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()}
    assert modes == dict.fromkeys(("authority.pem", "server.pem", "ca.crt", "lock"), 0o600)
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700
    assert b"PRIVATE" not in (tmp_path / "tls" / "ca.crt").read_bytes()


def test_the_certificate_is_renewed_thirty_days_before_it_expires_by_the_same_authority(tmp_path: Path) -> None:
    first = ensure(settings_of(tmp_path), NOW)
    ends = first.server.certificate.not_valid_after_utc
    assert not ensure(settings_of(tmp_path), ends - timedelta(days=30)).renewed
    renewed = ensure(settings_of(tmp_path), ends - timedelta(days=29, hours=23))
    assert renewed.renewed
    assert renewed.authority.certificate == first.authority.certificate
    assert renewed.server.certificate.not_valid_after_utc > ends


def test_the_certificate_never_outlives_the_authority_and_is_not_renewed_in_vain(tmp_path: Path) -> None:
    authority = ensure(settings_of(tmp_path), NOW).authority
    ends = authority.certificate.not_valid_after_utc
    last = ensure(settings_of(tmp_path), ends - timedelta(days=20))
    assert last.renewed
    assert last.server.certificate.not_valid_after_utc == ends
    assert not ensure(settings_of(tmp_path), ends - timedelta(days=1)).renewed


def test_the_certificate_is_renewed_for_a_new_address_and_names_what_the_authority_may_not_certify(
    tmp_path: Path, machine: list[str]
) -> None:
    ensure(settings_of(tmp_path), NOW)
    machine += ["192.168.1.8", "198.51.100.8"]
    renewed = ensure(settings_of(tmp_path), NOW)
    assert renewed.renewed
    assert ip_address("192.168.1.8") in renewed.server.names.addresses
    assert str(renewed.left_out) == "198.51.100.8"
    machine.remove("192.168.1.8")
    assert not ensure(settings_of(tmp_path), NOW).renewed
    replaced = ensure(settings_of(tmp_path), NOW, replace_authority=True)
    assert not replaced.left_out
    assert replaced.authority.certificate != renewed.authority.certificate


def test_further_names_are_kept_for_later_renewals_until_others_are_named(tmp_path: Path) -> None:
    ensure(settings_of(tmp_path), NOW, keep=parse_names(["voice.lan", "10.0.0.9"]))
    later = ensure(settings_of(tmp_path), NOW + timedelta(days=80))
    assert "voice.lan" in later.server.names.hosts
    assert ip_address("10.0.0.9") in later.server.names.addresses
    others = ensure(settings_of(tmp_path), NOW + timedelta(days=80), keep=parse_names(["other.lan"]))
    assert "other.lan" in others.server.names.hosts


@pytest.mark.parametrize("name", ["server.pem", "ca.crt"])
def test_a_damaged_or_missing_file_is_made_again(tmp_path: Path, name: str) -> None:
    before = ensure(settings_of(tmp_path), NOW)
    path = tmp_path / "tls" / name
    path.write_text("-----BEGIN CERTIF")
    after = ensure(settings_of(tmp_path), NOW)
    assert after.authority.certificate == before.authority.certificate
    assert x509.load_pem_x509_certificate(path.read_bytes()) in (after.server.certificate, after.authority.certificate)


def test_a_damaged_authority_is_not_replaced_unasked(tmp_path: Path) -> None:
    ensure(settings_of(tmp_path), NOW)
    (tmp_path / "tls" / local_certificate.AUTHORITY).write_text("x")
    with pytest.raises(StartupError, match="holds no usable authority: `trunkline web certificate --new-authority`"):
        ensure(settings_of(tmp_path), NOW)
    assert ensure(settings_of(tmp_path), NOW, replace_authority=True).renewed


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "tls").write_text("")
    with pytest.raises(StartupError, match=r"the certificate in .*tls cannot be made"):
        ensure(settings_of(tmp_path), NOW)
