"""`kill -9` of a server with a transfer in each state: the next start ends every leg, and closes calls and
transfers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import soxr

from media.audio_port import Samples
from media.background.loop_synthesis import SAMPLE_RATE
from media.hold_music.pieces import PIECES
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.sipcore.raw.raw_registrar import challenge
from tests.sipcore.raw.raw_stream_phone import StreamPhone
from tests.trunkline.api_client import Client
from tests.trunkline.callees import TargetCall
from tests.trunkline.faults.dialog_recovery import PASSWORD, USER, bye, cancelled, challenged_bye, entries, restart
from tests.trunkline.recording_analysis import audible
from tests.trunkline.server_process import Receiver, Server, until
from tests.trunkline.sip_phone import PhoneCall, known

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(180)]
LONG_HOLD_MESSAGE = "I will put you through now, and until somebody takes your call you will hear a little music. " * 3
LONG_SUMMARY = "They want to know when the lamp that they have ordered will be here, and what it costs. " * 5
End = Callable[[], Awaitable[Message]]


@dataclass
class Scene:
    """A server whose peers are phones of the test. Its calls are in `calls`."""

    server: Server
    client: Client
    stack: AsyncExitStack
    webhook_url: str
    open_phone: Callable[[], RawPhone]
    protocol: str = "udp"
    calls: list[TransferredCall] = field(default_factory=list)
    _numbers: int = 0

    async def phone(self) -> RawPhone:
        """A phone of the trunks' transport."""
        return await self.stack.enter_async_context(self.open_phone())

    async def call(self, mode: str, method: str = "bridge", *, user: str = "", **agent: Any) -> TransferredCall:
        """An answered call of an agent with a target. `user`: the trunk's user for challenges."""
        self._numbers += 1
        number, far = str(200 + self._numbers), await self.phone()
        self.calls.append(call := TransferredCall(self, number, far))
        target = {"name": "Support", "description": "Faults", "number": "555", "mode": mode}
        agent_id = await self.client.agent(
            transferTargets=[target], postCallWebhookUrl=self.webhook_url,
            **{"customerSilenceMs": 0, "holdMessage": "One moment."} | agent,
        )  # fmt: skip
        login = {"sipUsername": user, "sipPassword": PASSWORD} if user else {}
        await self.client.number(
            number, agent_id, sipPort=far.sip.port, sipTransferMethod=method, sipProtocol=self.protocol, **login
        )
        await call.begin()
        return call


@dataclass
class TransferredCall:
    """A caller's call, and the phone that its trunk leads to. `ends`: how each leg is ended, a leg of a peer each."""

    scene: Scene
    number: str
    far: RawPhone
    ends: list[End] = field(default_factory=list)
    outcome: tuple[str, str, str] = ("completed", "server_restart", "failed")
    """Status, ended reason and transfer status of the caller's call."""
    child: tuple[str, str] | None = None
    """Status and ended reason of the second leg; None: there is none."""

    async def begin(self) -> None:
        """The caller calls."""
        server = self.scene.server
        phone = await self.scene.phone()
        if isinstance(phone, StreamPhone):
            await phone.connect(server.settings["sip"]["tls_port"] if phone.via == "TLS" else server.sip_port)
        self.caller = await self.scene.stack.enter_async_context(PhoneCall(phone, self.number))
        self.id = (await server.event("call.incoming", number=self.number))["call_id"]
        await server.event("call.answered", call_id=self.id)

    async def transfer(self, **order: str) -> None:
        """Start the transfer by API."""
        body = {"target": "Support", **order}
        self.started = (await self.scene.client.v1("POST", f"calls/{self.id}/transfer", body))["id"]

    async def ringing(self, **order: str) -> RawCallee:
        """Start the transfer, and let the target ring."""
        await self.transfer(**order)
        callee = await RawCallee.wait_for_invite(self.far)
        callee.ring()
        return callee

    async def answered(self, **order: str) -> TargetCall:
        """Start the transfer; the target answers."""
        target = TargetCall(await self.ringing(**order))
        await self.scene.stack.enter_async_context(target)
        self.child = ("completed", "server_restart")
        return target

    async def connected(self) -> TargetCall:
        """Start the transfer; the target answers, and the two are connected."""
        target = await self.answered()
        await self.scene.server.event("transfer.connected", call_id=self.id)
        self.outcome = ("completed", "server_restart", "completed")
        self.expect_bye(self.caller, target)
        return target

    async def refer_accepted(self) -> None:
        """The peer accepts the REFER, and reports that it tries."""
        phone, dialog, body = self.caller.phone, self.caller.dialog, b"SIP/2.0 100 Trying"
        phone.reply(await phone.next_request("REFER"), "202 Accepted")
        dialog.cseq += 1
        headers = ("Event: refer", "Subscription-State: active;expires=60", "Content-Type: message/sipfrag")
        head = phone.request("NOTIFY", dialog, headers=headers)
        phone.send(head.replace(b"Content-Length: 0", b"Content-Length: %d" % len(body)) + body)
        assert (await phone.final_response("NOTIFY")).status == 200

    def expect_bye(self, *calls: PhoneCall) -> None:
        """The next start ends these legs."""
        self.ends += [partial(bye, call.phone) for call in calls]


async def audible_to(call: PhoneCall) -> None:
    """Wait until the phone hears something."""
    since = len(call.packets)
    async with asyncio.timeout(20):
        while not audible(call.sound(since), 8000).any():
            await call.hears(5)


async def silent_to(call: PhoneCall) -> None:
    """Wait until the phone hears nothing for a second, which no pause between two sentences lasts."""
    async with asyncio.timeout(40):
        while audible(await call.hears(50), 8000).any():
            pass


def queue_music() -> Samples:
    """Hold music at 8 kHz. It takes a moment, in which a target that has answered would be silent."""
    return soxr.resample(PIECES[0].render(), SAMPLE_RATE, 8000)


# ---- the states ----


async def hold_message(scene: Scene) -> None:
    """The agent says the hold message."""
    call = await scene.call("cold", holdMessage=LONG_HOLD_MESSAGE)
    await call.transfer()
    await audible_to(call.caller)
    call.expect_bye(call.caller)


async def dialling(scene: Scene) -> None:
    """The INVITE has got no response, not even 100. It may have been lost; the CANCEL goes after it all the same."""
    call = await scene.call("cold")
    await call.transfer()
    callee = await RawCallee.wait_for_invite(call.far)
    call.child = ("failed", "server_restart")
    call.ends += [lambda: bye(call.caller.phone), lambda: cancelled(callee)]


async def early_media(scene: Scene) -> None:
    """The target has sent 183 with SDP, and audio flows."""
    call = await scene.call("cold")
    await call.transfer()
    callee = await RawCallee.wait_for_invite(call.far)
    callee.ring(call.far.offer("0"), "183 Session Progress")
    await call.far.next_rtp()
    call.child = ("failed", "server_restart")
    call.ends += [lambda: bye(call.caller.phone), lambda: cancelled(callee)]


async def hold_music(scene: Scene) -> None:
    """The target rings, and the caller hears music."""
    call = await scene.call("cold")
    callee = await call.ringing()
    await audible_to(call.caller)
    call.child = ("failed", "server_restart")
    call.ends += [lambda: bye(call.caller.phone), lambda: cancelled(callee)]


async def screening(scene: Scene) -> None:
    """The target has answered, and has not spoken yet."""
    call = await scene.call("cold")
    target = await call.answered()
    while (await scene.client.call(call.started))["status"] != "in_progress":
        await target.hears(1)  # the answer is stored in the background
    call.expect_bye(call.caller, target)


async def briefing(scene: Scene) -> None:
    """The target hears the briefing."""
    call = await scene.call("warm_briefing")
    target = await call.answered()
    await audible_to(target)
    call.expect_bye(call.caller, target)


async def deciding(scene: Scene) -> None:
    """The target has heard the whole briefing, and has not decided."""
    call = await scene.call("warm_briefing")
    target = await call.answered()
    await audible_to(target)
    await silent_to(target)
    call.expect_bye(call.caller, target)


async def announcement(scene: Scene) -> None:
    """The target hears an announcement that needs no decision."""
    call = await scene.call("warm_announce")
    target = await call.answered(summary=LONG_SUMMARY)
    await audible_to(target)
    call.expect_bye(call.caller, target)


async def queue(scene: Scene) -> None:
    """A queue with music has answered, and the agent waits for a person."""
    music = await asyncio.to_thread(queue_music)
    call = await scene.call("warm_briefing")
    target = await call.answered()
    target.say(music)
    await scene.server.event("call.answer_verdict", call_id=call.started, kind="hold_queue")
    call.expect_bye(call.caller, target)


async def transcribed(scene: Scene) -> None:
    """The two are connected, and the agent transcribes them."""
    call = await scene.call("cold", stayOnCall=True)
    await call.connected()
    await scene.server.event("transcription.started", call_id=call.id)


async def held_by_client(scene: Scene) -> None:
    """The two are connected, and a client has put the caller on hold."""
    call = await scene.call("cold")
    await call.connected()
    await scene.client.v1("POST", f"calls/{call.id}/hold")
    await scene.server.event("call.held", call_id=call.id, by="client")


async def held(scene: Scene) -> None:
    """The two are connected, and the target holds the call. Both challenge the BYE."""
    call = await scene.call("cold", user=USER)
    target = await call.answered()
    await scene.server.event("transfer.connected", call_id=call.id)
    offer = target.phone.offer("0").rstrip() + "\r\na=sendonly\r\n"
    assert (await target.callee.reinvite(offer)).status == 200
    await scene.server.event("call.held", call_id=call.started, by="peer")
    call.outcome = ("completed", "server_restart", "completed")
    call.ends += [lambda: challenged_bye(call.caller.phone, 401), lambda: challenged_bye(target.phone, 407)]


async def refer_sent(scene: Scene) -> None:
    """The peer has not responded to the REFER."""
    call = await scene.call("cold", "refer")
    await call.transfer()
    await call.caller.phone.next_request("REFER")
    call.expect_bye(call.caller)


async def refer_pending(scene: Scene) -> None:
    """The peer has accepted a REFER, and has sent no final NOTIFY. It challenges the BYE, and the trunk has no user."""
    call = await scene.call("cold", "refer")
    await call.transfer()
    await call.refer_accepted()
    call.ends.append(lambda: refused_bye(call.caller.phone))


async def refer_pending_and_ended_meanwhile(scene: Scene) -> None:
    """The same, and the peer ends the call before the next start."""
    call = await scene.call("cold", "refer")
    await call.transfer()
    await call.refer_accepted()

    async def gone() -> Message:
        request = await call.caller.phone.next_request("BYE")
        call.caller.phone.reply(request, "481 Call/Transaction Does Not Exist")
        return request

    call.ends.append(gone)


async def refer_ended_by_bye(scene: Scene) -> None:
    """The peer has taken the call and ended it: no dialog is left."""
    call = await scene.call("cold", "refer")
    await call.transfer()
    await call.refer_accepted()
    await call.caller.hang_up()
    await scene.server.event("call.ended", call_id=call.id)
    call.outcome = ("completed", "transferred", "completed")


async def attended_refer_pending(scene: Scene) -> None:
    """The target has accepted; the peer has accepted the REFER with Replaces, and sent no final NOTIFY."""
    call = await scene.call("attended", "auto")
    target = await call.answered()
    await audible_to(target)
    target.press("1")
    await call.refer_accepted()
    call.expect_bye(call.caller, target)


STABLE: Final = (
    early_media, hold_music, queue, briefing, held, held_by_client, transcribed, refer_pending,
    refer_pending_and_ended_meanwhile, refer_ended_by_bye, attended_refer_pending,
)  # fmt: skip
LATER: Final = (dialling, announcement, deciding, refer_sent)
"""States that last about 20 s: nobody waits longer for a decision, or for a peer that does not respond."""
LAST: Final = (hold_message, screening)
"""States that last only seconds."""


async def refused_bye(phone: RawPhone) -> Message:
    """Challenge the BYE of a trunk without credentials."""
    request = await phone.next_request("BYE")
    phone.reply(request, "401 Unauthorized", challenge("nonce"))
    return request


@asynccontextmanager
async def opened(folder: Path, transport: str) -> AsyncIterator[tuple[Scene, Receiver]]:
    sip: dict[str, Any] = {}
    tls = None
    if transport == "tls":
        authority = Authority(folder / "authority")
        tls = authority.files("127.0.0.1")
        sip = {
            "tls_port": free_port(), "tls_cert": str(tls.certificate), "tls_key": str(tls.key),
            "tls_ca": str(authority.root),
        }  # fmt: skip
    server = Server(folder, sip=sip, limits={"max_calls": 40})
    key = await server.key()

    def phone() -> RawPhone:
        return RawPhone(server.target) if transport == "udp" else StreamPhone(server.target, tls)

    async with (
        Receiver() as receiver,
        AsyncExitStack() as stack,
        server,
        Client(server.origin, key, server.secrets) as client,
    ):
        await client.number("100", None)
        await known(server.target)
        yield Scene(server, client, stack, receiver.url, phone, transport), receiver


@pytest.mark.parametrize(
    ("transport", "states"),
    [
        ("udp", (STABLE, LATER, LAST)),
        ("tcp", ((hold_music, held),)),
        ("tls", ((hold_music, briefing, held, refer_pending, attended_refer_pending),)),
    ],
)
async def test_the_next_start_ends_the_legs_of_every_transfer(
    tmp_path: Path, transport: str, states: Sequence[Sequence[Callable[[Scene], Awaitable[None]]]]
) -> None:
    async with opened(tmp_path, transport) as (scene, receiver):
        server, client = scene.server, scene.client
        for each in states:
            await asyncio.gather(*(reach(scene) for reach in each))
        ends = [end for call in scene.calls for end in call.ends]
        await until(lambda: len(entries(server)) == len(ends))
        await server.kill()
        since = server.log.mark()
        found = await restart(server, *(end() for end in ends))
        for request in found:
            assert 'Q.850;cause=41;text="Temporary failure"' in request.header("Reason")
        assert [each["dialogs"] for each in server.log.all("dialogs.orphaned", since)] == [len(ends)]
        await until(lambda: not entries(server))
        refused = server.log.all("dialog.not_ended", since)
        assert [each["status"] for each in refused] == [401] * (refer_pending in states[0])
        for call in scene.calls:
            await receiver.about(call.id)
            parent = await client.call(call.id)
            assert (parent["status"], parent["endedReason"], parent["transferStatus"]) == call.outcome, call.number
            if call.child is not None:
                await receiver.about(call.started)
                child = await client.call(call.started)
                assert (child["status"], child["endedReason"]) == call.child, call.number
    expected = Counter(each for call in scene.calls for each in (call.id, *([call.started] if call.child else [])))
    assert Counter(json.loads(body)["callId"] for _, body in receiver.received) == expected
