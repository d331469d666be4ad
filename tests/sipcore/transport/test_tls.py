"""SIP over TLS: inbound and outbound connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from sipcore.dialogs.leg import Leg, LegEnd
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.security.digest import Credentials
from sipcore.settings import EndpointSettings, TlsFiles
from sipcore.transport.tls_identity import UnusableTlsFile
from sipcore.trunks.trunk import Trunk
from tests.peers.baresip import Baresip
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.sipcore.accelerated_endpoint import AcceleratedPhone
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.sipcore.raw.raw_tls import Connection, client_context, server_context, tls_server
from tests.sipcore.tones import audible_s, loudest_hz, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def phone(authority: Authority) -> AsyncIterator[Phone]:
    files = authority.files("localhost", "127.0.0.1")
    async with Phone(
        EndpointSettings(codecs=("PCMU",), max_calls=20, tls_port=free_port(), tls=files, srtp="optional")
    ) as phone:
        yield phone


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


@asynccontextmanager
async def tls_connection(
    phone: Phone, context: ssl.SSLContext | None = None, source: str = ""
) -> AsyncIterator[Connection]:
    """A TLS connection to the phone."""
    context = context or client_context(phone.settings.tls)
    connection = await Connection.connect("127.0.0.1", phone.settings.tls_port, context, source=source)
    try:
        yield connection
    finally:
        connection.close()


async def is_served(connection: Connection, raw: RawPhone) -> bool:
    """True if an OPTIONS over it gets 200."""
    connection.writer.write(raw.request("OPTIONS", raw.dialog(), via="TLS"))
    return (await connection.next_message()).status == 200


@pytest.mark.parametrize(
    ("version", "served"),
    [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)],
)
async def test_only_tls_1_2_and_1_3_are_accepted(
    phone: Phone, raw: RawPhone, version: ssl.TLSVersion, served: bool
) -> None:
    context = client_context(phone.settings.tls)
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    if served:
        async with tls_connection(phone, context) as connection:
            assert await is_served(connection, raw)
    else:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await Connection.connect("127.0.0.1", phone.settings.tls_port, context)


async def test_reloaded_certificate_is_used_for_new_connections_only(
    phone: Phone, raw: RawPhone, authority: Authority
) -> None:
    async with tls_connection(phone) as before:
        assert await is_served(before, raw)
        authority.files("localhost", "127.0.0.1")
        identity = await phone.endpoint.reload_certificate()
        assert phone.endpoint.certificate is identity
        async with tls_connection(phone) as after:
            assert after.tls.getpeercert(True) != before.tls.getpeercert(True)
            assert await is_served(after, raw)
        assert await is_served(before, raw)


async def test_unusable_files_do_not_change_the_certificate(phone: Phone, raw: RawPhone, authority: Authority) -> None:
    key = phone.settings.tls.key
    assert key
    kept = key.read_bytes()
    async with tls_connection(phone) as before:
        shown = before.tls.getpeercert(True)
    key.write_bytes(kept[:100])
    with pytest.raises(UnusableTlsFile, match="holds no private key"):
        await phone.endpoint.reload_certificate()
    key.write_bytes(kept)
    async with tls_connection(phone) as after:
        assert after.tls.getpeercert(True) == shown
        assert await is_served(after, raw)


async def test_repeated_reload_leaks_no_descriptor(phone: Phone) -> None:
    await phone.endpoint.reload_certificate()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        await phone.endpoint.reload_certificate()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_failed_reload_leaks_no_descriptor(phone: Phone, raw: RawPhone, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ports continue with the former files."""
    taken: list[object] = []

    def reload(files: object) -> None:
        taken.append(files)
        if len(taken) == 1:
            raise OSError("no port")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("sipcore.transport.tls_listener._native.tls_reload", reload)
    with pytest.raises(OSError, match="no port"):
        await phone.endpoint.reload_certificate()
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.undo()
    assert len(taken) == 2
    async with tls_connection(phone) as connection:
        assert await is_served(connection, raw)


async def test_more_sources_than_the_bpf_filter_holds_can_all_connect(phone: Phone, raw: RawPhone) -> None:
    many = [f"127.{10 + number // 250}.{number % 250}.7" for number in range(2000)]
    phone.endpoint.set_sources(["127.0.0.1", *many, "127.99.0.1"])
    async with tls_connection(phone, source="127.99.0.1") as connection:
        assert await is_served(connection, raw)
    phone.endpoint.set_sources(["127.0.0.1"])


async def test_unknown_sources_get_no_tls_handshake_until_they_are_known(phone: Phone, raw: RawPhone) -> None:
    async def may_connect(source: str) -> bool:
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(5), tls_connection(phone, source=source) as connection:
                return await is_served(connection, raw)
        return False

    assert not await may_connect("127.0.0.5")
    phone.endpoint.set_sources(["127.0.0.1", "127.0.0.5", "192.0.2.0/24"])
    assert await may_connect("127.0.0.5")
    assert not await may_connect("127.0.0.6")
    phone.endpoint.set_sources(["127.0.0.1"], ["127.0.0.4/30"])
    assert await may_connect("127.0.0.6"), "a probe, by its network"
    assert not await may_connect("127.0.0.8")
    phone.endpoint.set_sources([f"192.0.{n // 250}.{n % 250}" for n in range(3000)] + ["127.0.0.1"])
    assert await may_connect("127.0.0.1"), "more sources than the kernel takes: the guard alone judges"
    phone.endpoint.set_sources(["127.0.0.1"])
    assert not await may_connect("127.0.0.5")


@pytest.mark.parametrize(
    "garbage", [b"OPTIONS sip:x SIP/2.0\r\n\r\n", b"\x16\x03\x01\x00\x05\x63\x00\x00\x01\x00", os.urandom(5000)]
)
async def test_data_that_is_no_tls_ends_only_its_connection(phone: Phone, raw: RawPhone, garbage: bytes) -> None:
    phone.endpoint.log_guard_events()  # of others before
    async with tls_connection(phone) as other:
        reader, writer = await asyncio.open_connection("127.0.0.1", phone.settings.tls_port)
        writer.write(garbage)
        assert await Connection(reader, writer).wait_closed()
        writer.close()
        assert await is_served(other, raw)
    with capture_logs() as logs:  # some may tell of sources that were turned away before
        phone.endpoint.log_guard_events()
    assert {line["peer"] for line in logs if line["event"] == "sip.tls_failed"} == {"127.0.0.1"}


async def test_tls_renegotiation_is_rejected(phone: Phone, raw: RawPhone) -> None:
    child = await asyncio.create_subprocess_exec(
        "openssl", "s_client", "-connect", f"127.0.0.1:{phone.settings.tls_port}", "-tls1_2",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert child.stdin and child.stdout
    said = b""
    async with asyncio.timeout(10):
        while b"Extended master secret" not in said:
            said += await child.stdout.read(4096)
        child.stdin.write(b"R\n")
        await child.stdin.drain()
        while b"no renegotiation" not in said:
            more = await child.stdout.read(4096)
            assert more, said.decode()[-500:]
            said += more
        child.stdin.close()
        await child.wait()
    async with tls_connection(phone) as other:
        assert await is_served(other, raw)


async def test_incomplete_handshake_and_silent_connection_are_closed(authority: Authority) -> None:
    """Five and ten seconds by the endpoint's clock, which is thirty times as fast."""
    files, port = authority.files("localhost"), free_port()
    paths = [str(files.certificate), str(files.key)]
    async with AcceleratedPhone.started(tls_port=port, tls=paths):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01\x02\x00\x01")
        silent = await Connection.connect("127.0.0.1", port, client_context(files))
        assert await Connection(reader, writer).wait_closed(3)
        assert await silent.wait_closed(3)
        writer.close()
        silent.close()


async def test_calls_with_baresip_over_tls_and_srtp(phone: Phone, authority: Authority) -> None:
    theirs = authority.files("127.0.0.1", file="baresip")
    with capture_logs() as logs:
        async with Baresip("PCMU/8000/1", encryption="srtp", tls=theirs) as baresip:
            await baresip.command("dial", f"sip:100@127.0.0.1:{phone.settings.tls_port};transport=tls")
            leg = await phone.next_leg()
            await leg.answer()
            await baresip.event("CALL_ESTABLISHED")
            await assert_audio_both_ways(phone, baresip, leg)
            leg = await phone.endpoint.call(baresip.uri)
            await asyncio.wait_for(leg.wait_connected(), 5)
            await assert_audio_both_ways(phone, baresip, leg)
    assert "sip.srtp_keys_in_clear" not in [line["event"] for line in logs]


async def assert_audio_both_ways(phone: Phone, baresip: Baresip, leg: Leg) -> None:
    media = await leg.wait_connected()
    assert media.keying == "sdes"
    track = phone.audio.follow(media.slot)
    async with asyncio.timeout(10):
        while audible_s(track.received, 8000) < 0.3:  # it begins when it is scheduled
            await phone.audio.ticks(5)
    phone.pump.write(media.slot, tone(8000, 1000, 0.4))
    await phone.audio.ticks(30)
    await leg.hangup()
    await baresip.event("CALL_CLOSED")
    leg.release()
    rate, samples = await baresip.received_audio()
    assert loudest_hz(track.received, 8000) == pytest.approx(440, abs=5)
    assert loudest_hz(samples, rate) == pytest.approx(1000, abs=5)
    assert audible_s(samples, rate) > 0.3


# ---- connections that we make ----


async def end_of_call(
    phone: Phone, server: TlsFiles, host: str = "127.0.0.1", scheme: str = "sip"
) -> tuple[LegEnd | None, str]:
    """Call a server with that certificate: None when it received the INVITE, else the end of the leg; and the logged
    reason."""
    phone.endpoint.log_guard_events()  # of others before
    with capture_logs() as logs:
        async with tls_server(server_context(server)) as (port, connections):
            phone.endpoint.set_host_table({SipHostPort(host, port, "tls"): [SipTarget("127.0.0.1", port, "tls")]})
            parameter = ";transport=tls" if scheme == "sip" else ""
            leg = await phone.endpoint.call(f"{scheme}:1@{host}:{port}{parameter}")
            arrived = asyncio.ensure_future(_first_message(connections))
            await asyncio.wait((arrived, leg.ended), return_when=asyncio.FIRST_COMPLETED, timeout=5)
            end = None if arrived.done() else leg.ended.result()
            arrived.cancel()
            await leg.hangup()
        phone.endpoint.log_guard_events()
    return end, next((line["why"] for line in logs if line["event"] == "sip.tls_failed"), "")


async def _first_message(connections: asyncio.Queue[Connection]) -> str:
    while True:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            return (await (await connections.get()).next_message()).first_line


@pytest.mark.parametrize(
    ("name", "host", "scheme"),
    [
        ("127.0.0.1", "127.0.0.1", "sip"),
        ("sip.carrier.test", "sip.carrier.test", "sip"),
        ("sip.carrier.test", "SIP.carrier.test", "sips"),
        ("*.carrier.test", "sip.carrier.test", "sip"),
    ],
)
async def test_server_with_a_matching_certificate_is_called(
    phone: Phone, authority: Authority, name: str, host: str, scheme: str
) -> None:
    assert await end_of_call(phone, authority.files(name, file="carrier"), host, scheme) == (None, "")


@pytest.mark.parametrize(
    ("names", "days", "host", "why"),
    [
        (["other.carrier.test"], (-1, 9), "sip.carrier.test", "its certificate is for other.carrier.test"),
        (["*.carrier.test"], (-1, 9), "a.sip.carrier.test", "its certificate is for *.carrier.test"),
        (["*.test"], (-1, 9), "carrier.test", "its certificate is for *.test"),
        (["sip.carrier.test"], (-1, 9), "127.0.0.1", "its certificate is for sip.carrier.test"),
        (["sip.carrier.test"], (-9, -1), "sip.carrier.test", "its certificate has expired or is not valid yet"),
        (["sip.carrier.test"], (1, 9), "sip.carrier.test", "its certificate has expired or is not valid yet"),
    ],
)
async def test_server_without_a_matching_certificate_gets_no_message(
    phone: Phone, authority: Authority, names: list[str], days: tuple[float, float], host: str, why: str
) -> None:
    end, reason = await end_of_call(phone, authority.files(*names, days=days, file="carrier"), host)
    assert end == LegEnd(0, end.reason if end else "", by_peer=True)
    assert reason == (f"{why}, not for {host}" if " is for " in why else why)


async def test_certificate_of_an_unknown_authority_is_rejected(phone: Phone, tmp_path: Path) -> None:
    end, reason = await end_of_call(phone, Authority(tmp_path, "Nobody").files("127.0.0.1"))
    assert end is not None
    assert reason == "its certificate is from an authority that is not trusted here ([sip] tls_ca)"


def response_to(request: Message, status: str, *headers: str, body: str = "") -> bytes:
    """A response."""
    copied = [line for name in ("Via", "From", "Call-ID", "CSeq", "Record-Route") for line in request.headers(name)]
    to = request.header("To") + ("" if "tag=" in request.header("To") else ";tag=theirs")
    kind = ["Content-Type: application/sdp"] if body else []
    lines = [f"SIP/2.0 {status}", *copied, f"To: {to}", *headers, *kind, f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


async def test_tls_trunk_is_verified_by_name_even_if_its_contact_is_an_address(
    phone: Phone, raw: RawPhone, authority: Authority
) -> None:
    """SNI has the name; the ACK is sent to another port at an address that only has this name for us."""
    context, asked = server_context(authority.files("sip.carrier.test", file="carrier")), []
    context.sni_callback = lambda connection, name, _: asked.append(name)
    async with tls_server(context) as (port, connections), tls_server(context) as (other_port, other_connections):
        trunk = Trunk(
            "1", "sip.carrier.test", port, "tls", None, "+49301", None,
            registers=False, follow_redirects=False, accept_refer=False, qualify_s=0,
        )  # fmt: skip
        phone.endpoint.set_host_table({trunk.host_port: [SipTarget("127.0.0.1", port, "tls")]})
        leg = await phone.endpoint.call("100", trunk=trunk)
        connection = await asyncio.wait_for(connections.get(), 5)
        invite = await connection.next_message()
        contact = f"Contact: <sip:gate@127.0.0.1:{other_port};transport=tls>"
        connection.writer.write(response_to(invite, "200 OK", contact, body=raw.offer("0")))
        other_connection = await asyncio.wait_for(other_connections.get(), 5)
        assert (await other_connection.next_message()).first_line.startswith("ACK sip:gate@127.0.0.1")
        await asyncio.wait_for(leg.wait_connected(), 5)
        await leg.hangup()
        bye = await other_connection.next_message()
        assert bye.first_line.startswith("BYE ")
        other_connection.writer.write(response_to(bye, "200 OK"))
        await asyncio.wait_for(leg.ended, 5)
        leg.release()
    assert asked[0] == "sip.carrier.test"


async def test_registrar_calls_over_the_connection_of_the_registration(
    phone: Phone, raw: RawPhone, authority: Authority
) -> None:
    async with tls_server(server_context(authority.files("sip.carrier.test", file="carrier"))) as (port, connections):
        trunk = Trunk(
            "r", "sip.carrier.test", port, "tls", None, "ann", Credentials("ann", "secret"),
            registers=True, follow_redirects=False, accept_refer=False, qualify_s=0,
        )  # fmt: skip
        phone.endpoint.set_host_table({trunk.host_port: [SipTarget("127.0.0.1", port, "tls")]})
        await phone.endpoint.set_trunks([trunk])
        connection = await asyncio.wait_for(connections.get(), 5)
        register = await connection.next_message()
        contact = register.header("Contact").partition(";expires")[0]
        connection.writer.write(response_to(register, "200 OK", f"Contact: {contact};expires=200"))
        connection.writer.write(raw.request("INVITE", raw.dialog(), body=raw.offer("0"), via="TLS"))
        leg = await phone.next_leg()
        await leg.reject(486)
        while (answer := await connection.next_message()).status < 200:
            pass
        assert (answer.status, answer.header("CSeq")) == (486, "1 INVITE")
        leaving = asyncio.create_task(phone.endpoint.set_trunks([]))
        while not (bye := await connection.next_message()).first_line.startswith("REGISTER "):
            pass
        connection.writer.write(response_to(bye, "200 OK"))
        await leaving
