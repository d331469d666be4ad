"""Servers that drain, are killed and start again: calls, registrations, recordings and webhooks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from tests.peers.kamailio import Kamailio
from tests.peers.ports import RTP_PORTS
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone, Rtp
from tests.sipcore.raw.raw_registrar import RawRegistrar, accept_contacts, respond_with
from tests.sipcore.tones import mulaw, tone
from tests.trunkline.api_client import Client
from tests.trunkline.callees import ReceivedCall
from tests.trunkline.recording_analysis import audible, read_wav
from tests.trunkline.server_process import Receiver, Server
from tests.trunkline.sip_phone import PhoneCall, calling, known, refusal

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
PROVIDER = "127.0.0.2"
"""The address of the provider, which no other number's trunk has."""
ANN, BOB, DIRECT, OUTSIDE = "+49401234", "+49405678", "100", "+41445550199"
PLACES = 4
FIRST_PORT = 30000 + (RTP_PORTS[0] - 10000) // 4 + 400
"""RTP ports for exactly `max_calls` calls, so that each is soon used again."""


@dataclass
class Bindings:
    """The contacts that a registrar has of a user, polled continuously."""

    kamailio: Kamailio
    user: str
    seen: list[list[str]] = field(default_factory=list)
    """The contacts after every change."""
    over: bool = False
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def watch(self) -> None:
        """Poll until `over` is set. The task is not cancelled, because Python 3.11 may swallow the cancellation."""
        while not self.over:
            contacts = await self.kamailio.contacts(self.user)
            if not self.seen or contacts != self.seen[-1]:
                async with self._news:
                    self.seen.append(contacts)
                    self._news.notify_all()
            await asyncio.sleep(0.02)

    async def until(self, count: int) -> list[str]:
        """Wait until there are `count` contacts."""
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(lambda: bool(self.seen) and len(self.seen[-1]) == count)
        return self.seen[-1]


@dataclass
class Site:
    """A server with a number that is registered at a provider, and a number that is called directly."""

    server: Server
    client: Client
    receiver: Receiver
    kamailio: Kamailio
    mute: RawRegistrar
    """A second provider, which a test can make unresponsive."""
    bindings: Bindings
    agent_id: str
    line_id: str
    """The contacts of the registered number."""

    async def call_out(self) -> str:
        """Create an outbound call from the registered number; returns its id."""
        body = {"agentId": self.agent_id, "phoneNumberId": self.line_id, "to": OUTSIDE}
        return str((await self.client.v1("POST", "calls", body))["id"])

    async def webhook_outcome(self, call_id: str) -> tuple[str, str]:
        """Wait for a call's webhook; returns status and ended reason."""
        _, body = await self.receiver.about(call_id)
        ended = json.loads(body)
        found = await self.logged_outcome(call_id)
        assert (ended["status"], ended["event"]) == (found[0], "call.completed")
        return found

    async def logged_outcome(self, call_id: str) -> tuple[str, str]:
        """Wait for a call's end in the log; returns status and ended reason."""
        ended = await self.server.event("call.ended", call_id=call_id)
        return ended["status"], ended["reason"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    server = Server(
        tmp_path_factory.mktemp("site"),
        limits={"max_calls": PLACES, "max_outbound_per_second": 0.4},
        sip={"rtp_ports": f"{FIRST_PORT}-{FIRST_PORT + 2 * PLACES - 1}", "drain_timeout_s": 60},
    )
    key = await server.key()
    kamailio = Kamailio({"ann": "s3cret"}, numbers={ANN: "ann"}, host=PROVIDER)
    async with (
        kamailio,
        RawRegistrar(accept_contacts()) as mute,
        Receiver() as receiver,
        server,
        Client(server.origin, key, server.secrets) as client,
    ):
        agent_id = await client.agent(customerSilenceMs=0, postCallWebhookUrl=receiver.url)
        server.secrets.add("s3cret")
        trunk = {
            "sipMode": "registration", "sipUsername": "ann", "sipPassword": "s3cret", "sipProxy": kamailio.target,
        }  # fmt: skip
        body = {"number": ANN, "provider": "sip", "agentId": agent_id, **trunk}
        line_id = (await client.v1("POST", "phone-numbers", body))["id"]
        elsewhere = {"number": BOB, "sipUsername": "bob", "sipProxy": f"{mute.host}:{mute.port}"}
        await client.v1("POST", "phone-numbers", body | elsewhere)
        await client.number(DIRECT, agent_id)
        bindings = Bindings(kamailio, "ann")
        watching = asyncio.create_task(bindings.watch())
        await bindings.until(1)
        await server.log.events_of("trunk.registered", 2)
        yield Site(server, client, receiver, kamailio, mute, bindings, agent_id, line_id)
        bindings.over = True
        await watching


@pytest_asyncio.fixture(loop_scope="module")
async def site(_site: Site) -> Site:
    """The site, with a running server and a registered number."""
    if not _site.server.serves:
        await _site.server.start()
    await known(_site.server.target)
    await _site.bindings.until(1)
    return _site


@contextlib.asynccontextmanager
async def outside(site: Site) -> AsyncIterator[RawPhone]:
    """A phone behind the provider."""
    async with RawPhone(site.kamailio.target) as phone:
        await site.kamailio.set_route(OUTSIDE, f"sip:{phone.host}:{phone.sip.port}")
        yield phone


async def test_a_drain_keeps_the_registration_until_the_last_call_ends_and_a_start_registers_again(site: Site) -> None:
    server, since = site.server, site.server.log.mark()
    [bound] = site.bindings.seen[-1]
    seen = len(site.bindings.seen)
    async with outside(site) as phone, outside(site) as callee_phone:
        async with PhoneCall(phone, ANN) as inbound:
            first = (await server.event("call.answered", since=since))["call_id"]
            second = await site.call_out()
            async with ReceivedCall(await RawCallee.wait_for_invite(callee_phone)) as outbound:
                await server.event("call.answered", call_id=second)
                server.signal(signal.SIGTERM)
                await server.event("draining", since=since, live_calls=2)
                refused = await refusal(server.target, DIRECT)
                assert (refused.status, refused.header("Retry-After")) == (503, "10")
                await outbound.hears(25)
                await outbound.hang_up()
                await site.logged_outcome(second)
                await inbound.hears(25)
                assert site.bindings.seen[seen:] == []
                await inbound.hang_up()
        assert await server.ended() == 0
    assert await site.bindings.until(0) == []
    assert [await site.webhook_outcome(each) for each in (first, second)] == [("completed", "customer_ended")] * 2

    await server.start()
    await site.bindings.until(1)
    async with outside(site) as phone, PhoneCall(phone, ANN) as again:
        await again.hears(5)
        await again.hang_up()
    assert site.bindings.seen[seen:] == [[], [bound]], "one gap, and never two contacts"


async def test_unresponsive_peers_do_not_delay_a_stop(site: Site) -> None:
    """Peers that respond neither to BYE, nor to INVITE, nor to REGISTER."""
    server, since = site.server, site.server.log.mark()
    async with outside(site) as phone, calling(server.target, DIRECT) as mute:
        calls = [(await server.event("call.answered", since=since))["call_id"], await site.call_out()]
        await RawCallee.wait_for_invite(phone)
        await server.event("call.placed", call_id=calls[1])
        site.mute.set_answers(respond_with(""))
        server.signal(signal.SIGINT)
        await server.event("draining", since=since, live_calls=2)
        await mute.hears(5)
        server.signal(signal.SIGINT)
        sent_at = asyncio.get_running_loop().time()
        await mute.phone.next_request("BYE")
        assert await server.ended() == 0
        assert asyncio.get_running_loop().time() - sent_at < 15, "32 s is how long SIP would wait"
    assert [await site.logged_outcome(each) for each in calls] == [
        ("completed", "server_shutdown"),
        ("failed", "server_shutdown"),
    ]
    await site.bindings.until(0)
    site.mute.set_answers(accept_contacts())
    await server.start()
    assert [(await site.webhook_outcome(each))[1] for each in calls] == ["server_shutdown"] * 2


@contextlib.asynccontextmanager
async def keep_sending_rtp(phone: RawPhone) -> AsyncIterator[None]:
    """Send a loud tone to the RTP port of the ended call, which another call may have now."""
    sound = mulaw(tone(8000, 440, 1))

    async def talk() -> None:
        for number in range(100_000):
            at = 160 * number % len(sound)
            phone.send_rtp(Rtp(0, 5000 + number, 160 * (5000 + number), sound[at : at + 160], ssrc=0x0DD))
            await asyncio.sleep(0.02)

    talking = asyncio.create_task(talk())
    try:
        yield
    finally:
        talking.cancel()
        await asyncio.wait((talking,))


async def test_a_start_after_a_kill_closes_calls_keeps_recordings_registers_and_ignores_old_rtp(site: Site) -> None:
    server, since = site.server, site.server.log.mark()
    bound, seen = site.bindings.seen[-1], len(site.bindings.seen)
    async with outside(site) as callee_phone, RawPhone(server.target) as phone:
        async with PhoneCall(phone, DIRECT) as inbound:
            first = (await server.event("call.answered", since=since))["call_id"]
            second = await site.call_out()
            callee = await RawCallee.wait_for_invite(callee_phone)
            async with ReceivedCall(callee) as outbound:
                await server.event("call.answered", call_id=second)
                ringing = await site.call_out()
                (await RawCallee.wait_for_invite(callee_phone)).ring()
                await server.event("call.ringing", call_id=ringing)
                for call in (inbound, outbound):
                    call.say(tone(8000, 440, 1))
                await outbound.has_said()
                await outbound.hears(75)
                queued = await site.call_out()
                await server.event("call.queued", call_id=queued)
                await server.kill()
        async with keep_sending_rtp(phone), keep_sending_rtp(callee_phone):
            await server.start()
            await site.bindings.until(1)
            new_recordings = await new_calls(site)
            for old, bye in ((phone, phone.request("BYE", _next(inbound))), (callee_phone, callee.request("BYE"))):
                old.send(bye)
                assert (await old.final_response("BYE")).status == 481
    ended = [await site.webhook_outcome(each) for each in (first, second, ringing, queued)]
    assert ended == [("completed", "server_restart")] * 2 + [("failed", "server_restart")] * 2
    for call_id in (first, second):
        rate, sides = read_wav(await site.client.recording(call_id))
        loud = audible(sides[:, 0], rate)
        assert loud.sum() / 50 == pytest.approx(1, abs=0.2), "the tone that was said 1.5 s before the end"
        silence_s = (len(loud) - loud.nonzero()[0][-1]) / 50
        assert 0.9 <= silence_s <= 2, "the last half second may be missing, and what the jitter buffer holds"
    assert [new.mean() for new in new_recordings] == [0] * PLACES, "they hear nothing of the calls before"
    assert set(map(tuple, site.bindings.seen[seen:])) <= {tuple(bound)}, "one contact all the time"


def _next(call: PhoneCall) -> Any:
    call.dialog.cseq += 1
    return call.dialog


async def new_calls(site: Site) -> list[Any]:
    """Make as many calls as there are RTP ports for, the first one through the provider. Returns for each recording in
    which blocks the caller is audible."""
    since = site.server.log.mark()
    async with contextlib.AsyncExitStack() as stack:
        provider = await stack.enter_async_context(RawPhone(site.kamailio.target))
        made = [await stack.enter_async_context(PhoneCall(provider, ANN))]
        for _ in range(PLACES - 1):
            made.append(await stack.enter_async_context(calling(site.server.target, DIRECT)))
        for call in made:
            await call.has_heard(50)
        for call in made:
            await call.hang_up()
        ended = await site.server.log.events_of("call.ended", PLACES, since=since, reason="customer_ended")
    recordings = [read_wav(await site.client.recording(each["call_id"])) for each in ended]
    return [audible(sides[:, 0], rate) for rate, sides in recordings]
