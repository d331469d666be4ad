"""Numbers that have the trunk of a carrier in the settings: one registration for all at a registrar (Kamailio), and a
carrier by address (baresip); and the codecs of both."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from config.settings import Settings
from storage.accounts import organizations
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from tests.media.speech import speech
from tests.peers.baresip import Baresip
from tests.peers.kamailio import Kamailio
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.callees import ReceivedCall
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PhoneCall, dialled

pytestmark = pytest.mark.asyncio(loop_scope="module")
REGISTRAR, PEER, STRANGER = "127.0.0.2", "127.0.0.3", "127.0.0.4"
USER, PASSWORD = "49401234", "s3cret-of-the-carrier"
"""The user is the first number, too, as at many carriers: calls to the other one must not get there."""
OFFICE, NIGHT, OUTSIDE = "+49401234", "+49405678", "+41445550199"

G722_AND_PCMU = "9 0 101"


def codecs(sdp: str) -> list[str]:
    """The codecs of an SDP, in its order."""
    [payload_types] = re.findall(r"^m=audio \d+ RTP/AVP (.*?)\r?$", sdp, re.MULTILINE)
    names = dict(re.findall(r"^a=rtpmap:(\d+) ([^/]+)", sdp, re.MULTILINE))
    return [names[each] for each in payload_types.split() if names[each] != "telephone-event"]


@dataclass
class Site:
    """A server with two carriers."""

    server: LocalServer
    kamailio: Kamailio
    baresip: Baresip

    async def number(self, number: str, provider: str, **fields: Any) -> str:
        """Create a number without a trunk of its own, with an agent that thanks; returns its id."""
        agent = await self.server.client.agent(systemPrompt="Thank you. END")
        body = {"number": number, "provider": provider, "agentId": agent, **fields}
        return str((await self.server.client.v1("POST", "phone-numbers", body))["id"])

    async def get(self, number_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.server.client.v1("GET", f"phone-numbers/{number_id}")
        return found

    async def begin_call(self, number_id: str) -> str:
        """POST /calls; the call's id."""
        agent = (await self.get(number_id))["agentId"]
        body = {"agentId": agent, "phoneNumberId": number_id, "to": OUTSIDE}
        return str((await self.server.client.v1("POST", "calls", body))["id"])

    async def wait_known(self, source: str) -> None:
        """Wait until the server accepts requests of an address: it reads a new number a moment after the API has stored
        it."""
        async with RawPhone(self.server.target, source) as phone, asyncio.timeout(10):
            while True:
                phone.send(phone.request("OPTIONS", phone.dialog()))
                if (await phone.final_response("OPTIONS")).status == 200:
                    return
                await asyncio.sleep(0.02)  # there is no event for it

    async def refusal(self, caller: str, dialled_number: str) -> int:
        """The status that a call from an address gets."""
        async with RawPhone(self.server.target, caller) as phone:
            dialog = dialled(phone, dialled_number)
            branch = phone.invite(dialog, phone.offer())
            answer = await phone.final_response("INVITE")
            phone.acknowledge(dialog, answer, branch)
            return answer.status


async def _create_number_from_before(settings: Settings) -> None:
    """A number of a carrier that is not configured, as earlier versions stored it."""
    database = Database(settings.database_url)
    await database.open()
    fields = PhoneNumberFields(number="900", provider="provider_c")
    await database.write(lambda conn: phone_numbers.create(conn, organizations.create(conn, "earlier").id, fields))
    await database.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """The server of this module."""
    folder: Path = tmp_path_factory.mktemp("carriers")
    (folder / "password").write_text(f"{PASSWORD}\n")
    async with AsyncExitStack() as stack:
        numbers = dict.fromkeys((OFFICE, NIGHT), USER)
        kamailio = await stack.enter_async_context(Kamailio({USER: PASSWORD}, numbers=numbers, host=REGISTRAR))
        baresip = await stack.enter_async_context(Baresip("PCMA/8000/1,PCMU/8000/1", host=PEER, user=OUTSIDE))
        registration = {
            "name": "Harbour", "mode": "registration", "host": REGISTRAR, "port": kamailio.port, "user": USER,
            "password_file": str(folder / "password"), "codecs": ["PCMA", "PCMU"],
        }  # fmt: skip
        by_address = {"host": PEER, "port": baresip.port, "codecs": ["PCMU"]}
        server = await stack.enter_async_context(
            open_local_server(
                folder / "data",
                prepare=_create_number_from_before,
                providers={"provider_a": registration, "provider_b": by_address},
                sip={"unknown_source": "403"},
            )
        )
        yield Site(server, kamailio, baresip)
        assert PASSWORD not in str(server.log.events)


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def _no_numbers(site: Site) -> AsyncIterator[None]:
    """Delete the numbers of a test, also of one that failed."""
    yield
    for number in await site.server.client.v1("GET", "phone-numbers?limit=100"):
        if number["number"] in (OFFICE, NIGHT):
            await site.server.client.v1("DELETE", f"phone-numbers/{number['id']}")
    await site.kamailio.wait_for_contacts(USER, 0)


async def test_the_numbers_of_a_carrier_share_its_registration_and_call_and_are_called_through_it(site: Site) -> None:
    server, kamailio = site.server, site.kamailio
    assert await kamailio.contacts(USER) == []
    since = server.log.mark()
    office = await site.number(OFFICE, "provider_a")
    registered = await server.log.event("trunk.registered", trunk="provider_a", since=since)
    assert registered["registrar"] == REGISTRAR
    night = await site.number(NIGHT, "provider_a")
    [contact] = await kamailio.wait_for_contacts(USER)
    assert contact.startswith("sip:provider_a@")
    for number_id in (office, night):
        found = await site.get(number_id)
        assert (found["sipMode"], found["sipStatus"]) == (None, "registered"), found
    await site.wait_known(REGISTRAR)
    async with RawPhone(kamailio.target) as phone:
        await kamailio.set_route(OUTSIDE, f"sip:{phone.host}:{phone.sip.port}")
        for number, number_id in ((OFFICE, office), (NIGHT, night)):
            since = server.log.mark()
            async with PhoneCall(phone, number) as call:
                call_id = await server.answered(since)
                call.say(speech("hello there"))
                await call.hung_up()
            ended = await server.ended(call_id)
            assert (ended["phoneNumberId"], ended["provider"]) == (number_id, "provider_a")

        call_id = await site.begin_call(night)
        callee = await RawCallee.wait_for_invite(phone)
        assert callee.number == OUTSIDE
        assert callee.invite.header("From").startswith(f"<sip:{USER}@{REGISTRAR}>;tag=")
        assert callee.invite.header("P-Asserted-Identity") == f"<sip:{NIGHT}@{REGISTRAR}>"
        async with ReceivedCall(callee) as call:
            await call.hears(5)
            call.say(speech("hello there"))
            await call.hung_up()
        assert (await server.ended(call_id))["status"] == "completed"

    assert await server.client.status("DELETE", f"phone-numbers/{office}") == 200
    assert (await site.get(night))["sipStatus"] == "registered"
    assert await kamailio.contacts(USER) == [contact], "the other number still uses the registration"
    assert await server.client.status("DELETE", f"phone-numbers/{night}") == 200
    await kamailio.wait_for_contacts(USER, 0)


async def test_a_carrier_by_address_calls_and_is_called(site: Site) -> None:
    server, baresip = site.server, site.baresip
    number = await site.number(OFFICE, "provider_b", sipQualifySeconds=0)
    assert (await site.get(number))["sipStatus"] == "listening"
    await site.wait_known(PEER)
    since = server.log.mark()
    await baresip.command("dial", f"sip:{OFFICE}@{server.target}")
    await baresip.event("CALL_ESTABLISHED")
    call_id = await server.answered(since)
    await baresip.command("hangup")
    await baresip.event("CALL_CLOSED")
    ended = await server.ended(call_id)
    assert (ended["phoneNumberId"], ended["endedReason"]) == (number, "customer_ended")
    assert ended["mediaQuality"]["codec"] == "PCMU", "of the carrier, though baresip prefers PCMA"

    call_id = await site.begin_call(number)
    assert OFFICE in (await baresip.event("CALL_ESTABLISHED"))["peeruri"]
    await baresip.command("hangup")
    ended = await server.ended(call_id)
    assert (ended["endedReason"], ended["mediaQuality"]["codec"]) == ("customer_ended", "PCMU")

    async with Baresip("PCMA/8000/1", host=PEER, user=OUTSIDE) as without_codec:
        await without_codec.command("dial", f"sip:{OFFICE}@{server.target}")
        assert (await without_codec.event("CALL_CLOSED"))["param"].startswith("488 ")


async def test_calls_of_a_carrier_have_its_codecs_in_every_sdp(site: Site) -> None:
    """PCMA and PCMU, of all that [sip] codecs has."""
    server, kamailio = site.server, site.kamailio
    number = await site.number(OFFICE, "provider_a", sipTransferMethod="bridge")
    target = {"name": "Desk", "description": "Faults", "number": OUTSIDE, "mode": "cold"}
    await server.client.v1("PATCH", f"agents/{(await site.get(number))['agentId']}", {"transferTargets": [target]})
    await kamailio.wait_for_contacts(USER)
    await site.wait_known(REGISTRAR)
    async with RawPhone(kamailio.target) as phone:
        await kamailio.set_route(OUTSIDE, f"sip:{phone.host}:{phone.sip.port}")
        call_id = await site.begin_call(number)
        callee = await RawCallee.wait_for_invite(phone)
        assert codecs(callee.invite.body) == ["PCMA", "PCMU"]
        callee.answer(phone.offer("8 101", "rtpmap:8 PCMA/8000"))
        await callee.next_request("ACK")
        assert codecs((await callee.reinvite(phone.offer(G722_AND_PCMU, "rtpmap:9 G722/8000"))).body) == ["PCMU"]
        assert (await callee.reinvite(phone.offer("9 101", "rtpmap:9 G722/8000"))).status == 488
        assert codecs((await callee.reinvite("", phone.offer())).body) == ["PCMA", "PCMU"]
        await callee.hang_up()
        assert (await server.ended(call_id))["endedReason"] == "customer_ended"

        since = server.log.mark()
        dialog = dialled(phone, OFFICE)
        branch = phone.invite(dialog, phone.offer("9 101", "rtpmap:9 G722/8000"))
        refusal = await phone.final_response("INVITE")
        phone.acknowledge(dialog, refusal, branch)
        assert (refusal.status, refusal.header("Warning")) == (
            488, '305 trunkline "The offer has none of PCMA, PCMU"',
        )  # fmt: skip
        assert (await server.log.event("call.refused", since=since))["code"] == 488
        dialog = dialled(phone, OFFICE)
        phone.invite(dialog, phone.offer(G722_AND_PCMU, "rtpmap:9 G722/8000"))
        assert codecs((await phone.complete_invite(dialog)).body) == ["PCMU"]
        dialog.cseq += 1
        phone.send(phone.request("INVITE", dialog))
        ours = await phone.final_response("INVITE")
        phone.send(phone.request("ACK", dialog, body=phone.offer()))
        assert ours.status == 200, ours
        assert codecs(ours.body) == ["PCMA", "PCMU"]

        call_id = await server.answered(since)
        await server.client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
        second_leg = await RawCallee.wait_for_invite(phone)
        assert (second_leg.number, codecs(second_leg.invite.body)) == (OUTSIDE, ["PCMA", "PCMU"])
        second_leg.reject("486 Busy Here")
        await phone.bye(dialog)
        await server.ended(call_id)


async def test_the_number_of_a_carrier_cannot_be_called_from_elsewhere(site: Site) -> None:
    await site.number(OFFICE, "provider_b", sipQualifySeconds=0)
    assert await site.refusal(STRANGER, OFFICE) == 403
    assert await site.refusal("127.0.0.1", OFFICE) == 404, "the source of other numbers"
    assert await site.refusal(REGISTRAR, OFFICE) in (403, 404), "the source of another carrier, if it is known at all"


async def test_a_number_with_its_own_trunk_does_not_use_the_carriers(site: Site) -> None:
    number = await site.number(NIGHT, "provider_a", sipMode="ip_allowlist", sipIp=PEER, sipPort=site.baresip.port)
    call_id = await site.begin_call(number)
    await site.baresip.event("CALL_ESTABLISHED")
    await site.baresip.command("hangup")
    assert (await site.server.ended(call_id))["endedReason"] == "customer_ended"
    assert await site.kamailio.contacts(USER) == []


async def test_the_start_names_the_numbers_whose_carrier_is_not_configured(site: Site) -> None:
    [warning] = site.server.log.all("carriers.not_configured")
    assert (warning["provider"], warning["numbers"]) == ("provider_c", 1)
    assert "[providers.provider_c]" in warning["remedy"]
