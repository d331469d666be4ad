"""The registration of a number at a provider (Kamailio), from its creation by the API to its deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bench.turn.scripted_models import WORDS
from tests.media.speech import speech
from tests.peers.kamailio import Kamailio
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.callees import ReceivedCall
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PhoneCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROVIDER = "127.0.0.2"
"""The address of the provider, which no other number's trunk has."""
ANN, BOB, OUTSIDE = "+49401234", "+49405678", "+41445550199"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kamailio() -> AsyncIterator[Kamailio]:
    """The provider, with two customers and an external phone."""
    passwords = {"ann": "s3cret", "bob": "swordfish"}
    async with Kamailio(passwords, numbers={ANN: "ann", BOB: "bob"}, host=PROVIDER) as kamailio:
        yield kamailio


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server")) as local_server:
        yield local_server


@pytest_asyncio.fixture(loop_scope="module")
async def phone(kamailio: Kamailio) -> AsyncIterator[RawPhone]:
    """An external phone, behind the provider."""
    async with RawPhone(kamailio.target) as phone:
        await kamailio.set_route(OUTSIDE, f"sip:{phone.host}:{phone.sip.port}")
        yield phone


def registration(kamailio: Kamailio, user: str, password: str) -> dict[str, Any]:
    """The trunk's fields of a number."""
    return {
        "sipMode": "registration", "sipUsername": user, "sipPassword": password, "sipProxy": kamailio.target,
    }  # fmt: skip


async def number(local_server: LocalServer, number: str, **trunk: Any) -> str:
    """Create a number without sipIp, with an agent that thanks; returns its id."""
    agent = await local_server.client.agent(systemPrompt="Thank you. END")
    body = {"number": number, "provider": "sip", "agentId": agent, **trunk}
    return str((await local_server.client.v1("POST", "phone-numbers", body))["id"])


async def status(local_server: LocalServer, number_id: str) -> tuple[str, str | None]:
    """The number's `sipStatus` and `sipStatusDetail`."""
    found = await local_server.client.v1("GET", f"phone-numbers/{number_id}")
    return found["sipStatus"], found["sipStatusDetail"]


async def begin_call(local_server: LocalServer, number_id: str) -> str:
    """POST /calls; the call's id."""
    found = await local_server.client.v1("GET", f"phone-numbers/{number_id}")
    body = {"agentId": found["agentId"], "phoneNumberId": number_id, "to": OUTSIDE}
    return str((await local_server.client.v1("POST", "calls", body))["id"])


async def test_a_registration_from_the_creation_of_its_number_to_its_deletion(
    local_server: LocalServer, kamailio: Kamailio, phone: RawPhone
) -> None:
    ann = await number(local_server, ANN, **registration(kamailio, "ann", "s3cret"))
    bob = await number(local_server, BOB, **registration(kamailio, "bob", "swordfish"))
    for each in (ann, bob):
        await local_server.log.event("trunk.registered", trunk=each)
    state, detail = await status(local_server, ann)
    assert state == "registered"
    assert str(detail).startswith("registered until ") and str(detail).endswith(f"Z at {PROVIDER}")
    [bobs] = await kamailio.contacts("bob")

    since = local_server.log.mark()
    async with PhoneCall(phone, ANN) as call:
        call_id = await local_server.answered(since)
        call.say(speech("hello there"))
        await call.hung_up()
    ended = await local_server.ended(call_id)
    assert (ended["status"], ended["phoneNumberId"], ended["direction"]) == ("completed", ann, "inbound")
    assert [item["content"] for item in ended["transcript"]] == [WORDS, "Thank you."]

    out = await begin_call(local_server, ann)
    callee = await RawCallee.wait_for_invite(phone)
    assert callee.number == OUTSIDE
    assert callee.invite.header("From").startswith(f"<sip:ann@{PROVIDER}>;tag=")
    assert callee.invite.header("P-Asserted-Identity") == f"<sip:{ANN}@{PROVIDER}>"
    async with ReceivedCall(callee) as call:
        await local_server.answered(since=local_server.log.mark() - 1)
        await call.hears(5)
        await local_server.client.v1("PATCH", f"phone-numbers/{bob}", {"sipPassword": "guess"})
        told = await local_server.log.event("trunk.failed", trunk=bob)
        assert told["number"] == (await local_server.client.v1("GET", f"phone-numbers/{bob}"))["number"]
        assert told["why"] == f"401 Unauthorized from {PROVIDER}: the user name or the password is wrong"
        assert await status(local_server, bob) == ("failed", told["why"])
        await kamailio.wait_for_contacts("bob", 0)
        await local_server.client.v1("PATCH", f"phone-numbers/{ann}", {"sipPassword": "guess"})
        await local_server.log.event("trunk.failed", trunk=ann)
        await call.hears(5)
        call.say(speech("hello there"))
        await call.hung_up()
    assert (await local_server.ended(out))["endedReason"] == "agent_ended"
    assert "swordfish" not in str(local_server.log.events) and "s3cret" not in str(local_server.log.events)

    since = local_server.log.mark()
    await local_server.client.v1("PATCH", f"phone-numbers/{bob}", {"sipPassword": "swordfish"})
    await local_server.log.event("trunk.registered", trunk=bob, since=since)
    assert await kamailio.wait_for_contacts("bob") == [bobs]
    assert await local_server.client.status("DELETE", f"phone-numbers/{bob}") == 200
    await kamailio.wait_for_contacts("bob", 0)
    assert await local_server.client.status("DELETE", f"phone-numbers/{ann}") == 200


async def test_an_outbound_call_does_not_wait_for_the_registration(
    local_server: LocalServer, kamailio: Kamailio, phone: RawPhone
) -> None:
    """INVITE is challenged and authenticated separately."""
    trunk = registration(kamailio, "ann", "s3cret") | {
        "sipAuthUser": "ann",
        "sipOutboundProxy": f"sip:{kamailio.target}",
    }
    line = await number(local_server, ANN, **trunk)
    call_id = await begin_call(local_server, line)
    callee = await RawCallee.wait_for_invite(phone)
    callee.reject("486 Busy Here")
    assert (await local_server.ended(call_id))["endedReason"] == "busy"
    assert await local_server.client.status("DELETE", f"phone-numbers/{line}") == 200
