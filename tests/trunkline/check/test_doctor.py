"""`trunkline doctor`: addresses, certificates, clock, priority, disk, and PBXs that answer or do not."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from sipcore.resolver.target import SipTarget
from sipcore.transport.tls_identity import TlsIdentity
from tests.trunkline.check.test_sip import create_numbers
from trunkline.certificates import local_certificate
from trunkline.check import host, options_probe
from trunkline.check.host import Advice
from trunkline.cli import main

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Commands may block the event loop."""


def settings_of(folder: Path, **tables: Any) -> Settings:
    return Settings(data_dir=folder).with_changes(tables)


async def test_the_addresses_of_the_settings_are_compared_with_those_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "own_addresses", lambda: frozenset({"127.0.0.1", "192.0.2.4", "203.0.113.9"}))
    monkeypatch.setattr(host, "_interfaces", lambda: "eth0 192.0.2.4 203.0.113.9")

    async def network(**sip: Any) -> str:
        return await host.network(settings_of(tmp_path, sip=sip))

    assert await network() == "eth0 192.0.2.4 203.0.113.9"
    assert "there is no NAT" in await network(public_address="203.0.113.9")
    behind_nat = await network(public_address="198.51.100.7", rtp_ports="20000-20999")
    assert "with 198.51.100.7 must forward UDP port 5060 and UDP ports 20000-20999" in behind_nat
    with pytest.raises(OSError, match=r"host 192\.0\.2\.5 is no address of this machine, which has eth0"):
        await network(host="192.0.2.5")
    with pytest.raises(OSError, match=r"public_address 224\.0\.0\.1 is multicast"):
        await network(public_address="224.0.0.1")
    monkeypatch.setattr(host, "_interfaces", lambda: "")
    with pytest.raises(Advice, match="phones on other machines cannot reach"):
        await network()


@pytest.mark.parametrize(
    ("days", "url", "problem"),
    [
        (100, "https://voice.example.com", None),
        (100, "https://a.b.example.com", "is for voice.example.com, *.b.example.com"),
        (100, "https://other.example.com", "not for other.example.com of [api] public_url"),
        (5, "https://voice.example.com", "5 days left: renew it"),
        (-3, "https://voice.example.com", "expired 3 days ago: renew it"),
    ],
)
async def test_the_certificate_of_the_api_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, url: str, problem: str | None
) -> None:
    identity = TlsIdentity(names=("voice.example.com", "*.b.example.com"), expires_at=NOW + timedelta(days=days))
    monkeypatch.setattr(host, "read_identity", lambda files: identity)
    monkeypatch.setattr(host, "utc_now", lambda: NOW)
    settings = settings_of(tmp_path, api={"tls_cert": "/x.pem", "tls_key": "/y.pem", "public_url": url})
    try:
        text = await host.api_certificate(settings)
    except (OSError, Advice) as error:
        text = str(error)
        assert problem is not None
    assert (problem or "100 days left") in text


@pytest.mark.parametrize(
    ("at_day", "lost", "problem"),
    [
        (0, None, "90 days left; devices must trust"),
        (0, "server.pem", "is not there or unusable: the server makes it when it starts"),
        (90, None, "expired 1 days ago: `trunkline web certificate`"),
        (3650, None, "has expired: `trunkline web certificate` --new-authority"),
    ],
)
async def test_the_certificate_of_the_local_authority_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_day: int, lost: str | None, problem: str
) -> None:
    settings = settings_of(tmp_path, api={"https_port": 8443, "host": "127.0.0.1"})
    local_certificate.ensure(settings, NOW)
    if lost is not None:
        (settings.tls_dir / lost).unlink()
    monkeypatch.setattr(host, "utc_now", lambda: NOW + timedelta(days=at_day, minutes=1 if at_day else 0))
    with pytest.raises((OSError, Advice)) if at_day or lost else nullcontext() as raised:
        text = await host.api_certificate(settings)
    assert problem in (text if raised is None else str(raised.value))


async def test_a_certificate_of_another_authority_or_without_a_name_of_the_machine_is_found(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, api={"https_port": 8443, "host": "127.0.0.1"})
    now = datetime.now(UTC)
    local_certificate.ensure(settings, now)
    renamed = settings.with_changes({"api": {"public_url": "https://voice.lan"}})
    with pytest.raises(Advice, match=r"is not for voice\.lan"):
        await host.api_certificate(renamed)
    other = settings_of(tmp_path / "other", api={"https_port": 8443})
    local_certificate.ensure(other, now)
    settings.local_certificate_file.write_bytes(other.local_certificate_file.read_bytes())
    with pytest.raises(OSError, match="is not of the authority"):
        await host.api_certificate(settings)


async def test_the_clock_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_is_synchronized", lambda: True)
    assert (await host.clock(settings_of(tmp_path))).endswith(" UTC, synchronized by NTP")
    monkeypatch.setattr(host, "_is_synchronized", lambda: False)
    with pytest.raises(Advice, match="chrony"):
        await host.clock(settings_of(tmp_path))
    monkeypatch.setattr(host, "utc_now", lambda: datetime(1970, 1, 1, tzinfo=UTC))
    with pytest.raises(OSError, match="it is 1970-01-01 here: set the clock"):
        await host.clock(settings_of(tmp_path))


def test_the_kernel_tells_whether_the_clock_is_synchronized() -> None:
    assert host._is_synchronized() in (True, False, None)


async def test_a_full_disk_names_its_remedies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "GiB are free" in await host.disk(settings_of(tmp_path / "new"))
    usage = type("Usage", (), {"total": 100 << 30, "free": 100 << 20})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"less than the reserve of 512 MiB: free some space"):
        await host.disk(settings_of(tmp_path))


@contextmanager
def pbx(answer: str | None) -> Iterator[tuple[int, list[str]]]:
    """A UDP port that answers each request with this status, or not at all; its port and what it received."""
    received: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setblocking(False)
        listener.bind(("127.0.0.1", 0))

        def on_request() -> None:
            data, peer = listener.recvfrom(65535)
            request = data.decode()
            received.append(request)
            if answer is not None:
                kept = [
                    line for line in request.split("\r\n") if line.startswith(("Via", "From", "To", "Call-ID", "CSeq"))
                ]
                listener.sendto("\r\n".join([f"SIP/2.0 {answer}", *kept, "Content-Length: 0", "", ""]).encode(), peer)

        loop = asyncio.get_running_loop()
        loop.add_reader(listener, on_request)
        try:
            yield listener.getsockname()[1], received
        finally:
            loop.remove_reader(listener)


async def test_pbxs_are_asked_by_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options_probe.options_answer, "__defaults__", (1.2,))
    settings = settings_of(tmp_path)
    with pbx("200 OK") as (port, received), pbx("403 Forbidden") as (other, _):
        await create_numbers(settings, {"sip_ip": "127.0.0.1", "sip_port": port})
        assert await options_probe.trunks(settings) == "100: 127.0.0.1 answers 200 OK"
        assert received[0].startswith(f"OPTIONS sip:127.0.0.1:{port} SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:")
        target = SipTarget("127.0.0.1", other, "udp")
        assert await options_probe.options_answer(target) == "403 Forbidden"
    with pytest.raises(Advice, match=r"^100: 127\.0\.0\.1 does not answer: is the PBX up"):
        await options_probe.trunks(settings)
    assert await options_probe.trunks(settings_of(tmp_path / "other")) == "no phone number has one yet"
    unqualified = settings_of(tmp_path / "unqualified")
    await create_numbers(unqualified, {"sip_ip": "127.0.0.1", "sip_port": port, "sip_qualify_seconds": 0})
    assert await options_probe.trunks(unqualified) == "1, all their hosts are resolved", "it ignores OPTIONS"
    with pbx(None) as (silent, received):
        target = SipTarget("127.0.0.1", silent, "udp")
        assert await options_probe.options_answer(target) is None
        assert len(received) >= 2, "a request that gets no answer is repeated"


def test_every_check_has_a_line_and_notes_do_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    monkeypatch.setattr("structlog.configure", lambda **_: None)
    monkeypatch.setenv("TRUNKLINE_SIP__HOST", "127.0.0.1")
    monkeypatch.setattr(host, "_is_synchronized", lambda: False)
    for key in ("API", "SIP"):
        monkeypatch.setenv(f"TRUNKLINE_{key}__PORT", "0")
    assert main.main(["doctor", "--json"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]  # not the log of the tests
    results = {each["check"]: each for each in map(json.loads, lines)}
    names = [
        "network",
        "API port",
        "SIP ports",
        "SIP over TLS",
        "SIP addresses",
        "RTP ports",
        "API certificate",
        "clock",
    ]
    assert list(results) == [*names, "priority", "disk", "database", "trunks"]
    assert results["clock"]["state"] == "note" and results["disk"]["state"] == "ok"
    monkeypatch.setenv("TRUNKLINE_SIP__HOST", "192.0.2.77")
    assert main.main(["doctor"]) == 1
    assert "FAIL  network         [sip] host 192.0.2.77 is no address" in capsys.readouterr().out
