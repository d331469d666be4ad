"""Connected transfers of a leg with SRTP and one with plain RTP: audio, hold, DTMF and changed codecs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import Samples
from sipcore.settings import TlsFiles
from tests.peers.baresip import Baresip
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.sipcore.raw.raw_phone import Message, RawPhone, Rtp
from tests.sipcore.raw.raw_srtp import Keys, offer_with_keys
from tests.sipcore.tones import loudest_hz, tone
from tests.trunkline.callees import TargetCall, TrunkPhone, trunk_phone
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PCMA, PhoneCall, calling
from tests.trunkline.transferred_calls import (
    TARGET,
    assert_nothing_is_left,
    hears_music,
    share_of,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
BARESIP_HZ, PHONE_HZ, SECOND_PHONE_HZ = 440, 1000, 1600


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority that the server and its peers trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def peer_files(authority: Authority) -> TlsFiles:
    """The certificate of the peers."""
    return authority.files("127.0.0.1", file="peer")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    files = authority.files("127.0.0.1")
    sip = {
        "tls_port": free_port(), "tls_cert": str(files.certificate), "tls_key": str(files.key),
        "tls_ca": str(authority.root), "srtp": "optional",
    }  # fmt: skip
    async with open_local_server(
        tmp_path_factory.mktemp("server"), sip=sip, limits={"max_outbound_per_second": 50}
    ) as local_server:
        yield local_server


@pytest_asyncio.fixture(loop_scope="module")
async def phone(local_server: LocalServer) -> AsyncIterator[TrunkPhone]:
    """The target's phone."""
    async with trunk_phone(local_server.target) as phone:
        yield phone


class SdesCall(PhoneCall):
    """A call with SRTP, whose keys are in the SDP (RFC 4568)."""

    def __init__(self, phone: RawPhone, number: str) -> None:
        super().__init__(phone, number)
        self._ours = Keys.new()

    def offer(self, codecs: str = "0 101", *attributes: str) -> str:
        return offer_with_keys(super().offer(codecs, *attributes), self._ours)

    def _take_answer(self, answer: Message) -> None:
        self._theirs = Keys.from_sdp(answer.body)

    def _unpack(self, data: bytes) -> Rtp:
        return self._theirs.unprotect(data)

    def _pack(self, packet: Rtp) -> bytes:
        return self._ours.protect(packet.pack())


async def number_with_target(local_server: LocalServer, target_port: int, protocol: str = "udp") -> str:
    """A new number, whose agent has one target, at this port."""
    local_server.numbers += 1
    number = str(local_server.numbers)
    targets = [{"name": "Desk", "description": "Berths", "number": TARGET, "mode": "cold"}]
    agent_id = await local_server.client.agent(systemPrompt="Yes.", transferTargets=targets)
    fields = {"sipPort": target_port, "sipProtocol": protocol, "sipTransferMethod": "bridge"}
    await local_server.client.number(number, agent_id, **fields)
    return number


async def transfer(local_server: LocalServer, since: int) -> tuple[str, str]:
    """Transfer the call that was answered since then; returns its id and that of the second leg."""
    call_id = await local_server.answered(since)
    started = await local_server.client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
    return call_id, started["id"]


async def assert_keying(local_server: LocalServer, call_id: str, keying: str | None) -> None:
    """How the keys of a call's SRTP were agreed on, by the SDP of the answer."""
    trace = (await local_server.client.v1("GET", f"calls/{call_id}/sip"))["messages"]
    answer = next(each["text"] for each in trace if re.match(r"200 .*\(INVITE\)", each["summary"]))
    found = "sdes" if "a=crypto" in answer else "dtls" if "a=fingerprint" in answer else None
    assert found == keying, answer


async def assert_hears(call: PhoneCall, hertz: float) -> None:
    """The phone hears this tone."""
    await call.hears(25)
    assert loudest_hz(await call.hears(25), 8000) == pytest.approx(hertz, abs=5)


async def assert_holds(local_server: LocalServer, call: PhoneCall, call_id: str, hertz: float) -> None:
    """The phone holds and resumes by re-INVITE, and then hears the other side again."""
    since = local_server.log.mark()
    assert (await call.reinvite(call.offer("0 101", "sendonly"))).status == 200
    await local_server.log.event("call.held", since=since, call_id=call_id, by="peer")
    assert (await call.reinvite(call.offer())).status == 200
    await local_server.log.event("call.resumed", since=since, call_id=call_id, by="peer")
    await assert_hears(call, hertz)


async def assert_changes_codec(call: PhoneCall, hertz: float) -> None:
    """The phone goes on with PCMA."""
    assert (await call.reinvite(call.offer("8 101", "rtpmap:8 PCMA/8000"))).status == 200
    call.codec = PCMA
    async with asyncio.timeout(5):
        while call.packets[-1].kind != PCMA:
            await call.hears(1)
    since = len(call.packets)
    await assert_hears(call, hertz)
    assert {packet.kind for packet in call.packets[since:]} == {PCMA}


async def assert_receives_digits(call: PhoneCall, digits: str) -> None:
    """The phone receives these RFC 4733 digits."""
    async with asyncio.timeout(10):
        while call.digits() != digits:
            await call.hears(1)


def seconds_of(hertz: float, sound: Samples, rate: int) -> float:
    """How many seconds of a sound this frequency is the loudest in, by windows of 100 ms."""
    size = rate // 10
    windows = sound[: len(sound) // size * size].reshape(-1, size)
    loud = [window for window in windows if np.abs(window.astype(np.int32)).max() > 1000]
    return sum(abs(loudest_hz(window, rate) - hertz) <= 10 for window in loud) / 10


async def assert_baresip_and_phone_talk(
    local_server: LocalServer, baresip: Baresip, call: PhoneCall, baresip_id: str, phone_id: str
) -> None:
    """Audio, hold by either side, keys in both directions, and another codec and comfort noise of the phone. baresip
    holds and hangs up at last: it records nothing after its own hold."""
    call.say(tone(8000, PHONE_HZ, 2))
    await assert_hears(call, BARESIP_HZ)
    await call.has_said()
    call.press("17#")
    assert [(await baresip.event("CALL_DTMF_START"))["param"] for _ in "17#"] == list("17#")
    await baresip.command("sndcode", "5")
    await assert_receives_digits(call, "5")
    await assert_holds(local_server, call, phone_id, BARESIP_HZ)
    await assert_changes_codec(call, BARESIP_HZ)
    call.be_quiet(50)
    call.say(tone(8000, SECOND_PHONE_HZ, 2))
    await assert_hears(call, BARESIP_HZ)
    await call.has_said()
    since = local_server.log.mark()
    await baresip.command("hold")
    await local_server.log.event("call.held", since=since, call_id=baresip_id, by="peer")
    assert share_of(BARESIP_HZ, await hears_music(call)) < 0.5
    await baresip.command("resume")
    await local_server.log.event("call.resumed", since=since, call_id=baresip_id, by="peer")
    await assert_hears(call, BARESIP_HZ)
    call.press("9")
    assert (await baresip.event("CALL_DTMF_START"))["param"] == "9", "it receives RTP again"
    await baresip.command("hangup")
    await call.hung_up()
    rate, heard = await baresip.received_audio()
    assert (seconds_of(PHONE_HZ, heard, rate), seconds_of(SECOND_PHONE_HZ, heard, rate)) == pytest.approx(
        (2, 2), abs=0.3
    )


@pytest.mark.parametrize(("encryption", "tls", "keying"), [("srtp-mand", True, "sdes"), ("dtls_srtp", False, "dtls")])
async def test_an_encrypted_caller_and_a_plain_target_are_connected(
    local_server: LocalServer, phone: TrunkPhone, peer_files: TlsFiles, encryption: str, tls: bool, keying: str
) -> None:
    since = local_server.log.mark()
    number = await number_with_target(local_server, phone.port)
    async with Baresip("PCMU/8000/1", encryption=encryption, tls=peer_files if tls else None) as caller:
        port = local_server.server.settings.sip.tls_port if tls else local_server.server.sip_port
        await caller.command("dial", f"sip:{number}@127.0.0.1:{port}{';transport=tls' if tls else ''}")
        call_id, child_id = await transfer(local_server, since)
        async with TargetCall(await phone.called()) as target:
            await local_server.log.event("transfer.connected", transfer_id=child_id)
            await assert_baresip_and_phone_talk(local_server, caller, target, call_id, child_id)
    ended = await local_server.ended(call_id)
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "completed")
    await assert_keying(local_server, call_id, keying)
    await assert_keying(local_server, child_id, None)
    await assert_nothing_is_left(local_server, since)


async def test_a_plain_caller_and_an_encrypted_target_over_tls_are_connected(
    local_server: LocalServer, peer_files: TlsFiles
) -> None:
    since = local_server.log.mark()
    async with Baresip("PCMU/8000/1", user=TARGET, encryption="srtp", tls=peer_files) as target:
        number = await number_with_target(local_server, target.port + 1, "tls")
        async with calling(local_server.target, number) as caller:
            call_id, child_id = await transfer(local_server, since)
            await local_server.log.event("transfer.connected", transfer_id=child_id)
            await assert_baresip_and_phone_talk(local_server, target, caller, child_id, call_id)
    ended = await local_server.ended(call_id)
    assert (ended["endedReason"], ended["transferStatus"]) == ("transferred", "completed")
    await assert_keying(local_server, call_id, None)
    await assert_keying(local_server, child_id, "sdes")
    await assert_nothing_is_left(local_server, since)


async def test_a_target_that_requires_srtp_is_connected_after_its_488(
    local_server: LocalServer, peer_files: TlsFiles
) -> None:
    """The first INVITE offers RTP/AVP with keys, the second one RTP/SAVP."""
    since = local_server.log.mark()
    async with Baresip("PCMU/8000/1", user=TARGET, encryption="srtp-mand", tls=peer_files) as target:
        number = await number_with_target(local_server, target.port + 1, "tls")
        async with calling(local_server.target, number) as caller:
            call_id, child_id = await transfer(local_server, since)
            await local_server.log.event("transfer.connected", transfer_id=child_id)
            caller.say(tone(8000, PHONE_HZ, 2))
            await assert_hears(caller, BARESIP_HZ)
            await caller.has_said()
            await target.command("hangup")
            await caller.hung_up()
        rate, heard = await target.received_audio()
    assert seconds_of(PHONE_HZ, heard, rate) > 1
    ended = await local_server.ended(call_id)
    (shown,) = ended["transferCalls"]
    assert (ended["endedReason"], ended["transferStatus"]) == ("transferred", "completed")
    assert [(each["sipStatus"], each["outcome"]) for each in shown["attempts"]] == [(200, "answered")]
    trace = (await local_server.client.v1("GET", f"calls/{child_id}/sip"))["messages"]
    offers = [each["text"] for each in trace if each["summary"].startswith("INVITE ")]
    assert [re.findall(r" (RTP/S?AVP) ", each) for each in offers] == [["RTP/AVP"], ["RTP/SAVP"]]
    assert any(each["summary"].startswith("488 ") for each in trace)
    await assert_keying(local_server, child_id, "sdes")
    await assert_nothing_is_left(local_server, since)


async def test_an_encrypted_caller_changes_its_codec_while_the_target_is_plain_over_tcp(
    local_server: LocalServer,
) -> None:
    since = local_server.log.mark()
    async with Baresip("PCMU/8000/1", user=TARGET) as target:
        number = await number_with_target(local_server, target.port, "tcp")
        async with RawPhone(local_server.target) as raw, SdesCall(raw, number) as caller:
            call_id, child_id = await transfer(local_server, since)
            await local_server.log.event("transfer.connected", transfer_id=child_id)
            await assert_baresip_and_phone_talk(local_server, target, caller, child_id, call_id)
    await local_server.ended(call_id)
    await assert_keying(local_server, call_id, "sdes")
    await assert_keying(local_server, child_id, None)
    trace = (await local_server.client.v1("GET", f"calls/{child_id}/sip"))["messages"]
    assert "Via: SIP/2.0/TCP" in trace[0]["text"]
    await assert_nothing_is_left(local_server, since)
