"""SIP trace of a call, with a complete server: `GET /v1/calls/{id}/sip`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from calls.call_record.sip_trace import STORE_DELAY_S
from storage.accounts import api_keys, organizations
from storage.calls import sip_traces
from storage.calls.sip_traces import SipTrace
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.api_client import Client
from tests.trunkline.callees import trunk_phone
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PhoneCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
PASSWORD = "Zq7xSecretKw9"
KEY = 'Digest username="raw", realm="x", nonce="Zq7xSecretKw9", response="Zq7xSecretKw9"'
ANSWERED = ["INVITE", "100 Trying", "180 Ringing", "200 OK", "ACK"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    async with open_local_server(tmp_path_factory.mktemp("server")) as local_server:
        yield local_server


async def stored(local_server: LocalServer, call_id: str) -> SipTrace:
    """Wait until the trace of a call is stored; returns it."""
    read = local_server.server.database.read
    async with asyncio.timeout(10 * STORE_DELAY_S):
        while (found := await read(lambda conn: sip_traces.get(conn, call_id))) is None:  # noqa: ASYNC110 - a task writes it
            await asyncio.sleep(0.05)
    return found


def summaries(sip: dict[str, Any]) -> list[str]:
    return [message["summary"].split(" sip:")[0].split(" (")[0] for message in sip["messages"]]


async def test_the_trace_of_a_call_is_available_during_and_after_it(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent("Hello.")
    since = local_server.log.mark()
    async with RawPhone(local_server.target) as phone, PhoneCall(phone, number) as call:
        call_id = await local_server.answered(since)
        live = await local_server.client.v1("GET", f"calls/{call_id}/sip")
        await call.hang_up()
        await local_server.ended(call_id)
        just_ended = await local_server.client.v1("GET", f"calls/{call_id}/sip")
        ours, theirs = local_server.target, f"127.0.0.1:{phone.sip.port}"
    await stored(local_server, call_id)
    ended = await local_server.client.v1("GET", f"calls/{call_id}/sip")
    assert summaries(live) == ANSWERED
    assert summaries(ended) == [*ANSWERED, "BYE", "200 OK"]
    assert just_ended == ended
    invite, *_, bye = ended["messages"]
    assert live["messages"] == ended["messages"][:5]
    assert {name: value for name, value in invite.items() if name not in ("at", "text", "summary")} == {
        "offsetMs": 0, "direction": "received", "transport": "udp", "from": theirs, "to": ours, "cseq": 1, "sdp": True,
        "retransmission": False,
    }  # fmt: skip
    assert invite["text"].startswith(f"INVITE sip:{number}@127.0.0.1 SIP/2.0\n") and "m=audio" in invite["text"]
    assert (bye["direction"], bye["from"], bye["to"], bye["summary"]) == ("sent", ours, theirs, "200 OK (BYE)")
    assert ended["callId"] == call_id and ended["leftOut"] == 0
    assert "|<-" in ended["ladder"] and "->|" in ended["ladder"]
    assert (await local_server.client.get(f"/v1/calls/{call_id}/sip?format=text")) == (200, ended["ladder"].encode())


async def test_the_trace_of_a_rejected_outbound_call_has_the_peers_response(local_server: LocalServer) -> None:
    async with trunk_phone(local_server.target) as phone:
        number_id = await local_server.client.number("555", None, sipPort=phone.port)
        body = {"agentId": await local_server.client.agent(), "phoneNumberId": number_id, "to": "+41445550199"}
        call_id = (await local_server.client.v1("POST", "calls", body))["id"]
        callee = await phone.called()
        callee.reject("486 Busy Here")
        await callee.next_request("ACK")
    await local_server.ended(call_id)
    sip = await local_server.client.v1("GET", f"calls/{call_id}/sip")
    assert [each for each in summaries(sip) if each != "100 Trying"] == ["INVITE", "486 Busy Here", "ACK"]
    assert [message["direction"] for message in sip["messages"]][-2:] == ["received", "sent"]


async def test_messages_just_after_the_end_are_in_the_trace(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent("Hello.")
    since = local_server.log.mark()
    async with RawPhone(local_server.target) as phone, PhoneCall(phone, number) as call:
        call_id = await local_server.answered(since)
        call.dialog.cseq += 1
        bye = phone.request("BYE", call.dialog)
        phone.send(bye)
        await phone.final_response("BYE")
        await local_server.ended(call_id)
        phone.send(bye)
        await phone.final_response("BYE")
    sip = await stored(local_server, call_id)
    assert [(each["summary"].split()[0], each["again"]) for each in sip.messages[-4:]] == [
        ("BYE", False), ("200", False), ("BYE", True), ("200", True),
    ]  # fmt: skip


async def test_secrets_of_messages_are_masked_everywhere(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent("Hello.")
    since = local_server.log.mark()
    headers = (f"Authorization: {KEY}", f"Alert-Info: <sip:ann:{PASSWORD}@host>")
    async with RawPhone(local_server.target) as phone:
        call = PhoneCall(phone, number)
        phone.invite(call.dialog, phone.offer() + f"a=ice-pwd:{PASSWORD}\r\n", headers)
        await phone.complete_invite(call.dialog)
        call_id = await local_server.answered(since)
        assert await phone.info(call.dialog, "dtmf-relay", b"Signal=7\r\nDuration=160\r\n") == 200
        await phone.bye(call.dialog)
        await local_server.ended(call_id)
    trace = await stored(local_server, call_id)
    _, body = await local_server.client.get(f"/v1/calls/{call_id}/sip")
    for text in (str(trace), body.decode()):
        assert PASSWORD not in text and "Signal=7" not in text
        assert "sip:ann:*@host" in text and "Signal=*" in text and "username=" in text


async def test_calls_of_other_organizations_and_unknown_calls_are_not_found(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent("Hello.")
    since = local_server.log.mark()
    async with RawPhone(local_server.target) as phone, PhoneCall(phone, number) as call:
        call_id = await local_server.answered(since)
        other = await local_server.server.database.write(lambda conn: organizations.create(conn, "other"))
        _, key = await local_server.server.database.write(lambda conn: api_keys.create(conn, other.id))
        async with Client(local_server.server.api_origin, key, set()) as other_client:
            for path in (f"/v1/calls/{call_id}/sip", "/v1/calls/none/sip", f"/v1/calls/{call_id}/sip?format=text"):
                assert await other_client.get(path) == (404, b'{"error":"Call not found"}')
        assert (await local_server.client.get(f"/v1/calls/{call_id}/sip?format=xml"))[0] == 400
        await call.hang_up()


async def test_a_call_without_an_invite_has_no_messages(local_server: LocalServer) -> None:
    number_id = (await local_server.client.v1("POST", "phone-numbers", {"number": "556", "provider": "sip"}))["id"]
    body = {"agentId": await local_server.client.agent(), "phoneNumberId": number_id, "to": "+41445550199"}
    call_id = (await local_server.client.v1("POST", "calls", body))["id"]
    await local_server.ended(call_id)
    sip = await local_server.client.v1("GET", f"calls/{call_id}/sip")
    assert (sip["messages"], sip["leftOut"], sip["ladder"]) == ([], 0, "no SIP messages\n")
