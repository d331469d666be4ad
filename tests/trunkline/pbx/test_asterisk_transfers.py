"""Transfers by agents through Asterisk with the configuration of docs/how-to/pbx/asterisk.md, and a complete server.
Caller and targets are phones of Asterisk."""

from __future__ import annotations

import asyncio
import itertools
import wave
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import Samples
from sipcore.settings import TlsFiles
from tests.peers.asterisk import Asterisk, needs_root
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.sipcore.tones import tone
from tests.trunkline.caller_speech import words
from tests.trunkline.pbx.extension_phone import AnsweredCall, ExtensionCall, ExtensionPhone, dialling
from tests.trunkline.pbx.test_asterisk import block, copy_certificate, pbx
from tests.trunkline.phone_calls import real
from tests.trunkline.recording_analysis import audible
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.transferred_calls import (
    TransferredCall,
    assert_nothing_is_left,
    assert_they_hear_each_other,
    end_all_calls,
)

pytestmark = [needs_root, pytest.mark.asyncio(loop_scope="module")]

CALLER, TARGET, COLLEAGUE = "200", "555", "556"
HOSTS = {CALLER: "127.0.0.20", TARGET: "127.0.0.55", COLLEAGUE: "127.0.0.56"}
PHONE = """
[{extension}]
type=endpoint
context=phones
callerid=Ann <{extension}>
disallow=all
allow=ulaw
aors={extension}
direct_media=yes
call_group=1
pickup_group=1

[{extension}]
type=aor
max_contacts=1
remove_existing=yes

[{extension}]
type=identify
endpoint={extension}
match={host}
"""
EXTENSIONS = """
[phones]
exten => 556,1,Dial(PJSIP/556,45)
exten => *8,1,Pickup()

[from-trunkline]
exten => 600,1,Answer()
same => n,Playback({folder}/queue)
same => n,Queue(support)
exten => 610,1,Dial(PJSIP/555&PJSIP/556,45)
exten => 620,1,VoiceMail(620@default,u)
exten => 621,1,VoiceMail(621@default,u)
exten => 622,1,VoiceMail(621@default,b)
exten => 623,1,VoiceMail(621@default,us)
exten => 630,1,Transfer(PJSIP/sip:556@127.0.0.1:{port}\\;transport=udp)
exten => 631,1,Transfer(PJSIP/sip:556@127.0.0.1:{port}\\;transport=tls)
exten => 632,1,Transfer(PJSIP/sips:556@127.0.0.1:{port})
"""
CONTACTS = {"630": ";transport=udp>", "631": ";transport=tls>", "632": "<sips:556@"}
"""What the Contact of each of these extensions' 302 has."""
QUEUES = """
[support]
strategy = ringall
member => PJSIP/555
"""
PHONES = "".join(PHONE.format(extension=extension, host=host) for extension, host in HOSTS.items())
GREETING = "Hello. I am not available right now. Please leave a message after the tone."
ANNOUNCEMENT = (
    "Your call is very important to us. All of our agents are busy. Please stay on the line. "
    "We are open from nine to five, in English."
)
"""Its first words decide, long before its end."""
MUSIC_HZ = (262, 330, 392)
BRIDGED = {"sipTransferMethod": "bridge"}
NUMBERS = itertools.count(701)


@dataclass(frozen=True)
class Pbx:
    """Asterisk with phones, and the server that is connected with it."""

    local_server: LocalServer
    asterisk: Asterisk
    trunk: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the phone numbers."""
    phones_port: int = 0
    """The SIP port for phones; 0: the same as for the trunk."""

    def phone(self, extension: str) -> ExtensionPhone:
        """A phone of it."""
        return ExtensionPhone(f"127.0.0.1:{self.phones_port or self.asterisk.port}", extension, HOSTS[extension])

    @property
    def registers(self) -> bool:
        """The server registers with it."""
        return self.trunk.get("sipMode") == "registration"

    @asynccontextmanager
    async def call(
        self,
        target: str = TARGET,
        *,
        mode: str = "cold",
        number_fields: Mapping[str, Any] = {},
        warns: bool = False,
        **agent: Any,
    ) -> AsyncIterator[TransferredCall]:
        """An answered call of the caller's phone to an agent with this target. Checks at the end that nothing of the
        call is left, and that nothing went wrong in the log, unless warnings are expected."""
        local_server, number = self.local_server, str(next(NUMBERS))
        since = local_server.log.mark()
        targets = [{"name": "Support", "description": "Faults", "number": target, "mode": mode}]
        agent_id = await local_server.client.agent(
            systemPrompt="Yes. USE", languageHint="en", transferTargets=targets, **agent
        )
        address = {"sipProxy": f"127.0.0.1:{self.asterisk.port}"} if self.registers else {"sipPort": self.asterisk.port}
        fields = {**address, **self.trunk, **number_fields}
        number_id = await local_server.client.number(number, agent_id, **fields)
        if self.registers:
            await local_server.log.event("trunk.registered", since=since)
        async with self.phone(CALLER) as phone, dialling(phone, "700" if self.registers else number) as caller:
            call_id = await local_server.answered(since)
            try:
                yield TransferredCall(local_server, caller, call_id, since)
            except BaseException:
                print(self.asterisk.output())
                await end_all_calls(local_server)
                raise
        await local_server.log.event("call.ended", call_id=call_id)
        if self.registers:
            await local_server.client.v1("DELETE", f"phone-numbers/{number_id}")
            await local_server.log.event("trunk.unregistered", since=since)
        await assert_nothing_is_left(local_server, local_server.log.mark() if warns else since)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority that both sides trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    files = authority.files("127.0.0.1")
    sip = {
        "tls_port": free_port(), "tls_cert": str(files.certificate), "tls_key": str(files.key),
        "tls_ca": str(files.authorities), "srtp": "optional",
    }  # fmt: skip
    async with open_local_server(tmp_path_factory.mktemp("server"), real, sip=sip) as local_server:
        yield local_server


def write_sound(asterisk: Asterisk, name: str, sound: Samples) -> None:
    """Write a sound file of 8 kHz into the folder of Asterisk."""
    path = asterisk.spool / f"{name}.wav"
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(sound.tobytes())


def asterisk_with_phones(
    local_server: LocalServer, how: str, extensions: str, changes: Mapping[str, str], pjsip: str
) -> Asterisk:
    """Asterisk with the page's configuration and `changes`, phones, a queue with an announcement and music, and a
    mailbox with its owner's greeting."""
    files = {
        "pjsip.conf": PHONES + pjsip,
        "extensions.conf": EXTENSIONS + block("extensions.conf, transfers"),
        "queues.conf": QUEUES,
        "voicemail.conf": "[default]\n620 => 1234,Ann\n621 => 1234,Ben\n",
        "musiconhold.conf": "[default]\nmode=files\ndirectory={folder}/music\n",
    }
    asterisk = pbx(local_server, how, extensions, changes, files)
    write_sound(asterisk, "music/waltz", np.tile(np.concatenate([tone(8000, hz, 0.4) for hz in MUSIC_HZ]), 5))
    write_sound(asterisk, "queue", words(ANNOUNCEMENT, "rms"))
    write_sound(asterisk, "voicemail/default/620/unavail", words(GREETING))
    return asterisk


@asynccontextmanager
async def pbx_with_phones(
    local_server: LocalServer,
    how: str = "by address",
    changes: Mapping[str, str] = {},
    *,
    extensions: str = "",
    pjsip: str = "",
    certificate: TlsFiles | None = None,
    **trunk: Any,
) -> AsyncIterator[Pbx]:
    """`asterisk_with_phones`, running. `trunk`: further fields of the phone numbers."""
    asterisk = await asyncio.to_thread(asterisk_with_phones, local_server, how, extensions, changes, pjsip)
    if certificate is not None:
        copy_certificate(certificate, asterisk)
    async with asterisk:
        yield Pbx(local_server, asterisk, trunk)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def by_address(local_server: LocalServer) -> AsyncIterator[Pbx]:
    """Asterisk with the page's trunk by address."""
    async with pbx_with_phones(local_server) as pbx:
        yield pbx


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def encrypted(local_server: LocalServer, authority: Authority) -> AsyncIterator[Pbx]:
    """Asterisk with the page's encrypted trunk. Its phones use UDP."""
    port = free_port()
    phones = f"\n[transport-phones]\ntype=transport\nprotocol=udp\nbind=127.0.0.1:{port}\n"
    async with pbx_with_phones(
        local_server,
        "encrypted",
        extensions="by address",
        pjsip=phones,
        certificate=authority.files("127.0.0.1", file="asterisk"),
        sipProtocol="tls",
    ) as pbx:
        yield replace(pbx, phones_port=port)


@pytest.fixture(params=["by address", "encrypted"])
def either(request: pytest.FixtureRequest, by_address: Pbx, encrypted: Pbx) -> Pbx:
    """Each of both."""
    return by_address if request.param == "by address" else encrypted


async def sip_messages(pbx: Pbx, call_id: str) -> list[str]:
    """The SIP messages of a call, in brief, with their direction."""
    messages = (await pbx.local_server.client.v1("GET", f"calls/{call_id}/sip"))["messages"]
    return [f"{each['summary']} {each['direction']}" for each in messages]


async def assert_connected(call: TransferredCall, target: ExtensionCall) -> None:
    """Wait for the connection; assert that both hear each other."""
    await call.event("transfer.connected")
    await assert_they_hear_each_other(call.caller, target)


async def assert_target_ends(call: TransferredCall, target: ExtensionCall) -> dict[str, Any]:
    """The target hangs up, and so both calls end; returns the caller's."""
    await target.hang_up()
    await call.caller.hung_up()
    ended = await call.stored()
    assert (ended["status"], ended["endedReason"], ended["transferStatus"]) == ("completed", "transferred", "completed")
    return ended


async def hang_up_on_agent(call: TransferredCall) -> None:
    """Wait until the agent says that the transfer did not happen; then the caller hangs up."""
    await call.event("transfer.returned")
    while not audible(await call.caller.hears(10), 8000).any():
        pass
    await call.caller.hang_up()


async def accept_when_briefed(target: AnsweredCall) -> None:
    """The target says hello, again after 4 s of silence, because the recognizer may take the first one for the end of
    an announcement; it hears the briefing begin, and presses 1."""
    for _ in range(3):
        target.say(words("hello"))
        await target.has_said()
        for _ in range(20):
            if audible(await target.hears(10), 8000).any():
                target.press("1")
                return
    raise AssertionError("no briefing")


async def test_asterisk_takes_a_cold_transfer_by_refer(either: Pbx) -> None:
    async with either.call() as call, either.phone(TARGET) as phone:
        started = await call.transfer()
        callee = await phone.called()
        async with AnsweredCall(callee) as target:
            ended = await call.stored()
            await assert_they_hear_each_other(call.caller, target)
            await target.hang_up()
            await call.caller.hung_up()
    assert f"<sip:{CALLER}@" in callee.invite.header("From"), "the caller's number"
    assert (ended["status"], ended["endedReason"]) == ("completed", "transferred")
    (transfer,) = ended["transferCalls"]
    assert (transfer["id"], transfer["transferStatus"], transfer["sipStatus"]) == (started["id"], "completed", 200)
    messages = await sip_messages(either, call.call_id)
    assert "200 OK (BYE) received" in messages, "the server ended its leg"
    assert sum(each.startswith("NOTIFY") for each in messages) == messages.count("200 OK (NOTIFY) sent") >= 2


async def test_asterisk_has_taken_the_caller_of_a_busy_target_after_refer(by_address: Pbx) -> None:
    async with by_address.call() as call, by_address.phone(TARGET) as phone:
        await call.transfer()
        (await phone.called()).reject("486 Busy Here")
        await call.event("transfer.ended", status="busy", sip_status=486)
        await call.caller.hang_up()
        await by_address.local_server.client.v1("POST", f"calls/{call.call_id}/hangup")
    assert (await call.stored())["endedReason"] == "api_hangup", "Asterisk has not ended the server's leg"


async def test_a_context_for_transfers_leads_callers_back_to_the_agent(local_server: LocalServer) -> None:
    context = "context=from-trunkline"
    changes = {context: f"{context}\nset_var=TRANSFER_CONTEXT=transfers"}
    async with pbx_with_phones(local_server, changes=changes) as pbx:
        async with pbx.call("999") as call:
            await call.transfer()
            await hang_up_on_agent(call)
        ended = await call.stored()
        assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "failed")
        assert ended["transferCalls"][0]["sipStatus"] == 404
        agent_id = await local_server.client.agent(
            firstSpeaker="agent", agentGreetingEnabled=True, agentGreeting="Hello again."
        )
        await local_server.client.number("700", agent_id, sipPort=pbx.asterisk.port)
        async with pbx.call() as call, pbx.phone(TARGET) as phone:
            await call.transfer()
            since = local_server.log.mark()
            (await phone.called()).reject("486 Busy Here")
            again = await local_server.answered(since)
            assert audible(await call.caller.hears(100), 8000).any(), "the agent's greeting"
            await call.caller.hang_up()
        assert (await call.stored())["endedReason"] == "transferred"
        assert (await local_server.ended(again))["endedReason"] == "customer_ended"


async def test_the_server_calls_the_target_itself_when_asterisk_refuses_refer(
    local_server: LocalServer,
) -> None:
    changes = {"send_pai=yes": "send_pai=yes\nallow_transfer=no"}
    async with (
        pbx_with_phones(local_server, changes=changes) as pbx, pbx.call() as call, pbx.phone(TARGET) as phone
    ):  # fmt: skip
        await call.transfer()
        async with AnsweredCall(await phone.called()) as target:
            target.say(words("hello"))
            await assert_connected(call, target)
            ended = await assert_target_ends(call, target)
    outcomes = [(each["sipStatus"], each["outcome"]) for each in ended["transferCalls"][0]["attempts"]]
    assert outcomes == [(603, "refused"), (200, "answered")]


async def test_asterisk_takes_both_legs_of_an_attended_transfer(either: Pbx) -> None:
    async with either.call(mode="attended") as call, either.phone(TARGET) as phone:
        started = await call.transfer()
        async with AnsweredCall(await phone.called()) as target:
            await accept_when_briefed(target)
            ended, child = await call.stored(), await either.local_server.ended(started["id"])
            await assert_they_hear_each_other(call.caller, target)
            await target.hang_up()
            await call.caller.hung_up()
    assert (ended["status"], ended["endedReason"], ended["transferStatus"]) == ("completed", "transferred", "completed")
    assert (child["status"], child["endedReason"]) == ("completed", "transferred")
    outcomes = [(each["sipStatus"], each["outcome"]) for each in ended["transferCalls"][0]["attempts"]]
    assert outcomes == [(200, "answered"), (200, "completed")]
    for call_id in (call.call_id, child["id"]):
        assert any("(BYE)" in each for each in await sip_messages(either, call_id))


async def test_a_call_that_a_colleague_picks_up_is_connected(either: Pbx) -> None:
    async with (
        either.phone(TARGET) as phone,
        either.phone(COLLEAGUE) as colleague,
        either.call(number_fields=BRIDGED) as call,
    ):
        await call.transfer()
        callee = await phone.called()
        async with dialling(colleague, "*8") as target:
            await callee.expect_cancel()
            target.say(words("hello"))
            await assert_connected(call, target)
            await assert_target_ends(call, target)


async def test_the_phone_of_a_ring_group_that_answers_is_briefed(either: Pbx) -> None:
    async with (
        either.phone(TARGET) as phone,
        either.phone(COLLEAGUE) as colleague,
        either.call("610", mode="warm_briefing") as call,
    ):
        await call.transfer()
        callee, answers = await phone.called(), await colleague.called()
        async with AnsweredCall(answers) as target:
            await callee.expect_cancel()
            await accept_when_briefed(target)
            await assert_connected(call, target)
            await assert_target_ends(call, target)


@pytest.mark.parametrize(
    ("how", "extension"),
    [("by address", "630"), ("encrypted", "630"), ("encrypted", "631"), ("encrypted", "632"), ("by address", "632")],
)
async def test_a_redirect_by_asterisk_is_followed_over_the_transport_of_the_trunk(
    by_address: Pbx, encrypted: Pbx, how: str, extension: str
) -> None:
    """Also where the Contact names UDP: the keys of an encrypted trunk never leave its TLS."""
    pbx = by_address if how == "by address" else encrypted
    fields = {**BRIDGED, "sipAllowRedirect": True}
    async with pbx.phone(COLLEAGUE) as phone, pbx.call(extension, number_fields=fields) as call:
        started = await call.transfer()
        if (how, extension) == ("by address", "632"):
            await hang_up_on_agent(call)
        else:
            async with AnsweredCall(await phone.called()) as target:
                target.say(words("hello"))
                await assert_connected(call, target)
                await assert_target_ends(call, target)
    trace = (await pbx.local_server.client.v1("GET", f"calls/{started['id']}/sip"))["messages"]
    (redirect,) = [each["text"] for each in trace if each["summary"].startswith("302 ")]
    assert CONTACTS[extension] in redirect
    invites = [each["text"] for each in trace if each["summary"].startswith("INVITE") and each["direction"] == "sent"]
    assert {each.partition("Via: SIP/2.0/")[2][:3] for each in invites} == {"TLS" if pbx is encrypted else "UDP"}
    assert all("a=crypto" in each for each in invites)
    assert len(invites) == (1 if (how, extension) == ("by address", "632") else 2)


async def test_the_caller_stays_connected_when_the_target_transfers_the_call(by_address: Pbx) -> None:
    async with (
        by_address.phone(TARGET) as phone,
        by_address.phone(COLLEAGUE) as colleague,
        by_address.call(number_fields=BRIDGED) as call,
    ):
        started = await call.transfer()
        async with AnsweredCall(await phone.called()) as target:
            target.say(words("hello"))
            await call.event("transfer.connected")
            phone.send(target.callee.request("REFER", headers=(f"Refer-To: <sip:{COLLEAGUE}@127.0.0.1>",)))
            async with AnsweredCall(await colleague.called()) as last:
                await phone.transferred()
                await target.hang_up()
                await assert_they_hear_each_other(call.caller, last)
                await assert_target_ends(call, last)
    messages = await sip_messages(by_address, started["id"])
    assert "200 OK (UPDATE) sent" in messages, "Asterisk has said with whom the server is connected now"


async def test_direct_media_of_asterisk_is_followed(local_server: LocalServer) -> None:
    async with (
        pbx_with_phones(local_server, changes={"direct_media=no": "direct_media=yes"}) as pbx,
        pbx.call(number_fields=BRIDGED, warns=True) as call,  # of packets that the phone sends before the re-INVITE
        pbx.phone(TARGET) as phone,
    ):
        await call.transfer()
        async with AnsweredCall(await phone.called()) as target:
            target.say(words("hello"))
            await assert_connected(call, target)
            await assert_target_ends(call, target)
    assert any(each.startswith("INVITE sip:trunkline@") for each in await sip_messages(pbx, call.call_id))


async def test_a_target_accepts_by_a_key_that_asterisk_sends_by_info(local_server: LocalServer) -> None:
    async with (
        pbx_with_phones(local_server, changes={"dtmf_mode=rfc4733": "dtmf_mode=info"}) as pbx,
        pbx.call(mode="warm_briefing") as call,
        pbx.phone(TARGET) as phone,
    ):
        started = await call.transfer()
        async with AnsweredCall(await phone.called()) as target:
            await accept_when_briefed(target)
            await assert_connected(call, target)
            await assert_target_ends(call, target)
    assert "200 OK (INFO) sent" in await sip_messages(pbx, started["id"])


@pytest.mark.parametrize("how", ["by address", "by registration"])
async def test_the_target_sees_the_callers_number(local_server: LocalServer, by_address: Pbx, how: str) -> None:
    fields = {**BRIDGED, "sipTransferCallerId": "caller"}
    async with AsyncExitStack() as stack:
        pbx = by_address
        if how == "by registration":
            account: dict[str, Any] = {"sipUsername": "trunkline-reg", "sipPassword": "a-long-password"}
            registrar = pbx_with_phones(local_server, how, sipMode="registration", **account)
            pbx = await stack.enter_async_context(registrar)
        async with pbx.phone(TARGET) as phone, pbx.call(number_fields=fields) as call:
            await call.transfer()
            callee = await phone.called()
            callee.reject("486 Busy Here")
            await hang_up_on_agent(call)
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "busy")
    assert f'"Ann" <sip:{CALLER}@' in callee.invite.header("From")
    assert callee.invite.header("Diversion").startswith("<sip:7"), "the phone number"


async def test_a_mailbox_of_asterisk_leads_back_to_the_agent(either: Pbx) -> None:
    async with either.call("620", number_fields=BRIDGED) as call:
        started = await call.transfer()
        await hang_up_on_agent(call)
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "voicemail")
    child = await either.local_server.ended(started["id"])
    assert (child["status"], child["endedReason"]) == ("completed", "voicemail")


@pytest.mark.parametrize("extension", ["621", "622", "623"], ids=["unavailable", "busy", "without instructions"])
async def test_a_mailbox_without_a_greeting_of_its_owner_leads_back_to_the_agent(
    by_address: Pbx, extension: str
) -> None:
    """Asterisk plays its own greeting, in pieces; no piece of it may pass for a person to a cold transfer. The
    recognizer of a busy machine may be late, which is a warning: then the beep decides."""
    async with by_address.call(extension, number_fields=BRIDGED, warns=True) as call:
        started = await call.transfer()
        verdict = await call.event("call.answer_verdict", call_id=started["id"])
        await hang_up_on_agent(call)
    assert verdict["kind"] == "voicemail"
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "voicemail")
    child = await by_address.local_server.ended(started["id"])
    assert (child["status"], child["endedReason"]) == ("completed", "voicemail")


async def test_the_briefing_waits_for_the_member_of_a_queue_who_answers(either: Pbx) -> None:
    """The recognizer of a busy machine may be late, which is a warning: then the music decides."""
    async with either.phone(TARGET) as phone, either.call("600", mode="warm_briefing", warns=True) as call:
        started = await call.transfer()
        verdict = await call.event("call.answer_verdict", call_id=started["id"])
        assert verdict["kind"] == "hold_queue"
        callee = await phone.called()
        await call.caller.hears(100)
        assert (await call.shown())["transferStatus"] == "briefing"
        async with AnsweredCall(callee) as target:
            assert not audible(await target.hears(10), 8000).any(), "no briefing of the music"
            await accept_when_briefed(target)
            await assert_connected(call, target)
            await call.caller.hang_up()
            await target.hung_up()
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "completed")
