"""Transfers and redirects with a complete server: INVITE with Replaces, REFER, 3xx."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest
import pytest_asyncio
import sqlalchemy as sa

from bench.turn.scripted_models import WORDS
from storage import tables
from tests.media.speech import speech
from tests.sipcore.dialogs.test_refer import next_notify
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.trunkline.callees import ReceivedCall
from tests.trunkline.recording_analysis import audible, read_wav
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PhoneCall, calling, dialled

pytestmark = pytest.mark.asyncio(loop_scope="module")
GREETING = "Hello, this is the harbour office."
TALK = [GREETING, WORDS, "Thank you."]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server")) as local_server:
        yield local_server


class ReplacingCall(PhoneCall):
    """A call with a Replaces header, which takes over the call of another phone."""

    def __init__(self, phone: RawPhone, number: str, before: PhoneCall) -> None:
        super().__init__(phone, number)
        old = before.dialog
        self._place = f"Replaces: {old.call_id};to-tag={old.to.split('tag=')[1]};from-tag={old.tag}"

    async def __aenter__(self) -> Self:
        self.phone.invite(self.dialog, self.phone.offer(), headers=(self._place,))
        await self.phone.complete_invite(self.dialog)
        self._talking = asyncio.create_task(self._talk())
        return self


@asynccontextmanager
async def replacing(local_server: LocalServer, number: str, before: PhoneCall) -> AsyncIterator[ReplacingCall]:
    """An answered call that replaces another one."""
    async with RawPhone(local_server.target) as phone, ReplacingCall(phone, number, before) as replacing_call:
        yield replacing_call


async def number_of(local_server: LocalServer, **trunk: Any) -> str:
    """Create a number whose agent greets, listens, thanks and hangs up; returns the number."""
    local_server.numbers += 1
    agent = await local_server.client.agent(
        firstSpeaker="agent", agentGreetingEnabled=True, agentGreeting=GREETING, systemPrompt="Thank you. END"
    )
    await local_server.client.number(str(local_server.numbers), agent, **trunk)
    return str(local_server.numbers)


async def greeted(local_server: LocalServer, since: int) -> str:
    """Wait for the end of the agent's greeting; returns the call's id."""
    call_id = await local_server.answered(since)
    await local_server.log.event("turn.agent", call_id=call_id)
    return call_id


def contents(call: dict[str, Any]) -> list[str]:
    """The texts of a call's transcript."""
    return [item["content"] for item in call["transcript"]]


async def test_a_replacing_call_continues_the_conversation_and_the_recording(local_server: LocalServer) -> None:
    number, since = await number_of(local_server), local_server.log.mark()
    async with calling(local_server.target, number) as caller:
        call_id = await greeted(local_server, since)
        async with replacing(local_server, number, caller) as replacing_call:
            await caller.hung_up()
            replacing_call.say(speech("hello there"))
            await replacing_call.hung_up()
            assert audible(replacing_call.sound(), 8000).any()
    ended = await local_server.ended(call_id)
    assert (ended["status"], ended["endedReason"], contents(ended)) == ("completed", "agent_ended", TALK)
    assert ended["sipEnd"] == {
        "statusCode": 200,
        "reasonPhrase": None,
        "q850Cause": 16,
        "q850Text": "Normal call clearing",
        "byPeer": False,
    }
    rate, sides = read_wav(await local_server.client.recording(call_id))
    assert audible(sides[:, 0], rate).any(), "who took over is on the left"
    agent = audible(sides[:, 1], rate)
    assert agent[: len(agent) // 3].any(), "the greeting was to the first caller"
    assert agent[-len(agent) // 3 :].any(), "the thanks to the second"


async def test_a_refer_continues_the_call_with_its_target(local_server: LocalServer) -> None:
    async with RawPhone(local_server.target) as phone:
        number = await number_of(local_server, sipPort=phone.sip.port, sipAllowRefer=True)
        since = local_server.log.mark()
        async with calling(local_server.target, number) as caller:
            call_id = await greeted(local_server, since)
            caller.phone.send_in_dialog("REFER", caller.dialog, Refer_To="<sip:555@127.0.0.1>")
            callee = await RawCallee.wait_for_invite(phone)
            assert (callee.number, callee.invite.header("From").split("@")[0]) == ("555", f"<sip:{number}")
            async with ReceivedCall(callee) as other:
                notices = [await next_notify(caller.phone), await next_notify(caller.phone)]
                await caller.hung_up()
                other.say(speech("hello there"))
                await other.hung_up()
    ended = await local_server.ended(call_id)
    assert (ended["endedReason"], contents(ended)) == ("agent_ended", TALK)
    assert [notice.body.strip() for notice in notices] == ["SIP/2.0 100 Trying", "SIP/2.0 200 OK"]
    attempt = await local_server.log.event("outbound.attempt", since=since)
    assert (attempt["verdict"], attempt["destination"], attempt["call_id"]) == ("referred", "555", call_id)


async def refused(caller: PhoneCall, to: str) -> Message:
    """Send a REFER that must be rejected; returns the response."""
    caller.phone.send_in_dialog("REFER", caller.dialog, Refer_To=to)
    return await caller.phone.final_response("REFER")


async def test_a_refer_is_rejected_unless_the_number_allows_it_at_that_time(local_server: LocalServer) -> None:
    number, since = await number_of(local_server), local_server.log.mark()
    (number_id,) = [
        each["id"] for each in await local_server.client.v1("GET", "phone-numbers") if each["number"] == number
    ]
    async with RawPhone(local_server.target) as phone, calling(local_server.target, number) as caller:
        call_id = await greeted(local_server, since)
        assert (await refused(caller, "<sip:555@127.0.0.1>")).status == 603
        assert (await refused(caller, "<tel:+19005550100>")).status == 603
        trunk = {"sipPort": phone.sip.port, "sipAllowRefer": True}
        await local_server.client.v1("PATCH", f"phone-numbers/{number_id}", trunk)
        assert (await refused(caller, "<sip:556@127.0.0.1>")).status == 202
        (await RawCallee.wait_for_invite(phone)).reject("486 Busy Here")
        assert [(await next_notify(caller.phone)).body.strip() for _ in range(2)][1] == "SIP/2.0 486 Busy Here"
        await local_server.client.v1("PATCH", f"phone-numbers/{number_id}", {"sipAllowRefer": False})
        assert (await refused(caller, "<sip:557@127.0.0.1>")).status == 603
        await caller.hang_up()
    assert (await local_server.ended(call_id))["endedReason"] == "customer_ended"
    t = tables.outbound_attempts
    rows = sa.select(t.c.destination, t.c.verdict, t.c.client, t.c.detail).where(t.c.call_id == call_id)
    attempts = await local_server.server.database.read(lambda conn: conn.execute(rows.order_by(t.c.created_at)).all())
    never = "the trunk does not allow it"
    assert [tuple(each) for each in attempts] == [
        ("555", "refer_refused", "127.0.0.1", never),
        ("tel:+19005550100", "refer_refused", "127.0.0.1", "it is no sip: or sips: URI with a user"),
        ("556", "referred", "127.0.0.1", None),
        ("557", "refer_refused", "127.0.0.1", never),
    ]


async def test_a_redirect_within_the_trunk_is_followed(local_server: LocalServer) -> None:
    async with RawPhone(local_server.target) as phone:
        agent = await local_server.client.agent(systemPrompt="Thank you. END")
        local_server.numbers += 1
        trunk = {"sipPort": phone.sip.port, "sipAllowRedirect": True}
        number = await local_server.client.number(str(local_server.numbers), None, **trunk)
        body = {"agentId": agent, "phoneNumberId": number, "to": "+41445550199", "metadata": {"sip.X-Order": "17"}}
        call_id = str((await local_server.client.v1("POST", "calls", body))["id"])
        first = await RawCallee.wait_for_invite(phone)
        first.reject("302 Moved Temporarily", "Contact: <sip:555@elsewhere.example>;q=1, <sip:556@127.0.0.1>;q=0.5")
        second = await RawCallee.wait_for_invite(phone)
        assert (second.number, second.invite.header("X-Order")) == ("556", "17")
        async with ReceivedCall(second) as call:
            call.say(speech("hello there"))
            await call.hung_up()
    ended = await local_server.ended(call_id)
    assert (ended["endedReason"], contents(ended)) == ("agent_ended", [WORDS, "Thank you."])


async def test_headers_of_an_invite_are_stored_with_the_call(local_server: LocalServer) -> None:
    number, since = await number_of(local_server), local_server.log.mark()
    headers = ("P-Asserted-Identity: <sip:+41441@carrier>", "X-Customer: 17", "Diversion: <sip:8@h>")
    async with RawPhone(local_server.target) as phone:
        dialog = dialled(phone, number)
        phone.invite(dialog, phone.offer(), headers=headers)
        await phone.complete_invite(dialog)
        call_id = await local_server.answered(since)
        phone.send_in_dialog("BYE", dialog, Reason='Q.850;cause=16;text="Bye"')
        await phone.final_response("BYE")
    ended = await local_server.ended(call_id)
    assert (ended["customerNumber"], ended["metadata"]["sip.X-Customer"]) == ("+41441", "17")
    assert ended["metadata"]["sip.Diversion"] == "<sip:8@h>"
    assert (ended["sipEnd"]["q850Cause"], ended["sipEnd"]["q850Text"], ended["sipEnd"]["byPeer"]) == (16, "Bye", True)
