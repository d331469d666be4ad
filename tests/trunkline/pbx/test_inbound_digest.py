"""Inbound digest authentication with a complete server: SIPp and baresip with the password, and callers without it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import pytest_asyncio

from sipcore.security.digest import DigestVerifier
from tests.peers.baresip import Baresip
from tests.peers.sipp import Sipp
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone
from tests.sipcore.security.test_digest import Caller
from tests.trunkline.conftest import Office
from tests.trunkline.sip_phone import dialled, known

pytestmark = pytest.mark.asyncio(loop_scope="package")

NUMBER = "150"
USER, PASSWORD = "harbour", "hush-hush"
PCMU = {"pt": "0", "codec": "PCMU/8000", "ptime": "20"}


@pytest_asyncio.fixture(loop_scope="package", scope="module")
async def number(office: Office) -> str:
    """A number with `sipInboundAuth`."""
    await office.client.number(NUMBER, office.agent_id, sipInboundAuth=True, sipUsername=USER, sipPassword=PASSWORD)
    return NUMBER


async def _calls(office: Office) -> list[str]:
    return [each["id"] for each in await office.client.v1("GET", "calls?limit=50")]


@pytest.mark.parametrize("transport", ["u1", "t1"])
async def test_sipp_authenticates_and_calls(office: Office, number: str, transport: str) -> None:
    before = await _calls(office)
    credentials = (USER, PASSWORD)
    async with Sipp(
        "call_with_digest", office.server.target, user=number, keys=PCMU, transport=transport, credentials=credentials
    ) as sipp:
        await sipp.finished()
    assert len(await _calls(office)) == len(before) + 1, "the question was no call"


async def test_baresip_authenticates_and_calls(office: Office, number: str) -> None:
    async with Baresip("PCMU/8000/1", credentials=(USER, PASSWORD)) as baresip:
        await baresip.command("dial", f"sip:{number}@{office.server.target}")
        await baresip.event("CALL_ESTABLISHED")
        await baresip.command("hangup")
        await baresip.event("CALL_CLOSED")


class DigestCaller:
    """A phone that sends INVITEs with Authorization headers of a test."""

    def __init__(self, phone: RawPhone) -> None:
        self.phone = phone
        self.dialog = dialled(phone, NUMBER)
        self.caller = Caller(DigestVerifier(["MD5"]), "MD5")
        self.caller.uri = self.dialog.target

    async def send_invite(self, header: str = "") -> Message:
        """Send an INVITE with this Authorization header; returns the final response, and keeps the nonce of a
        challenge. An accepted call is hung up."""
        dialog = Dialog(self.dialog.call_id, self.dialog.tag, self.dialog.to, self.dialog.target, self.dialog.cseq)
        self.dialog.cseq += 1
        headers = (f"Authorization: {header}",) if header else ()
        branch = self.phone.invite(dialog, self.phone.offer(), headers)
        answer = await self.phone.final_response("INVITE")
        self.phone.acknowledge(dialog, answer, branch)
        if answer.status == 200:
            dialog.to, dialog.target = answer.header("To"), answer.header("Contact").strip("<>")
            await self.phone.bye(dialog)
        if found := re.search('nonce="([^"]+)"', answer.header("WWW-Authenticate")):
            self.caller.nonce = found[1]
        return answer

    def authorization(self, count: int = 1, password: str = PASSWORD, **more: Any) -> str:
        """The Authorization header for the latest nonce."""
        return self.caller.header(count, **({"user": USER, "password": password} | more))


async def test_a_caller_without_the_password_is_challenged_and_rejected(office: Office, number: str) -> None:
    before = await _calls(office)
    async with RawPhone(office.server.target) as phone:
        caller_phone = DigestCaller(phone)
        first = await caller_phone.send_invite()
        challenges = first.headers("WWW-Authenticate")
        assert first.status == 401
        assert [re.findall("algorithm=([A-Z0-9-]+)", each) for each in challenges] == [["MD5"]]
        assert all('realm="trunkline"' in each and 'qop="auth"' in each for each in challenges)
        nonce = caller_phone.caller.nonce
        since = office.server.log.mark()
        wrong = await caller_phone.send_invite(caller_phone.authorization(password="guess"))
        unknown = await caller_phone.send_invite(caller_phone.authorization(user="nobody"))
        assert (wrong.status, unknown.status) == (401, 401)
        for answer in (wrong, unknown):
            assert "stale" not in answer.text
            assert caller_phone.caller.nonce != nonce
        shapes = {
            re.sub(r'(nonce="[^"]+")|(tag=\S+)|(branch=\S+)|(CSeq: \d+)', "", each.text) for each in (wrong, unknown)
        }
        assert len(shapes) == 1, "a wrong user looks like a wrong password"
        lines = await office.server.log.events_of("sip.digest_failed", 2, since=since)
        assert [(each["source"], each["number"]) for each in lines] == [("127.0.0.1", NUMBER)] * 2
        assert not any(PASSWORD in line or "guess" in line for line in office.server.log.lines)
    assert await _calls(office) == before


async def test_a_replayed_authorization_is_rejected(office: Office, number: str) -> None:
    async with RawPhone(office.server.target) as phone:
        caller_phone = DigestCaller(phone)
        await caller_phone.send_invite()
        proof = caller_phone.authorization()
        assert (await caller_phone.send_invite(proof)).status == 200
        again = DigestCaller(phone)
        replayed = await again.send_invite(proof)
        assert replayed.status == 401
        assert "stale=true" in replayed.header("WWW-Authenticate")
        assert (await again.send_invite(again.authorization())).status == 200


async def test_a_caller_with_many_wrong_passwords_is_blocked(office: Office, number: str) -> None:
    rules = {"sipIp": "127.0.0.9", "sipInboundAuth": True, "sipUsername": USER, "sipPassword": PASSWORD}
    await office.client.number("151", office.agent_id, **rules)
    await known(office.server.target, "127.0.0.9")
    async with RawPhone(office.server.target, "127.0.0.9") as phone:
        caller_phone = DigestCaller(phone)
        caller_phone.dialog = dialled(phone, "151")
        caller_phone.caller.uri = caller_phone.dialog.target
        await caller_phone.send_invite()
        statuses = [
            (await caller_phone.send_invite(caller_phone.authorization(password=f"guess {each}"))).status
            for each in range(7)
        ]
        assert statuses == [401] * 5 + [403] * 2
        assert (await caller_phone.send_invite(caller_phone.authorization())).status == 403


async def test_a_challenge_of_this_server_is_never_answered_by_itself(office: Office, number: str) -> None:
    """Otherwise a trunk could send it back in an outbound call, and authenticate with the response."""
    async with RawPhone(office.server.target, "127.0.0.10") as phone:
        rules = {"sipInboundAuth": True, "sipUsername": USER, "sipPassword": PASSWORD}
        trunk = {"sipIp": phone.host, "sipPort": phone.sip.port, "sipQualifySeconds": 0}
        mine = await office.client.number("152", office.agent_id, **rules, **trunk)
        await known(office.server.target, phone.host)
        caller_phone = DigestCaller(phone)
        caller_phone.dialog = dialled(phone, "152")
        question = (await caller_phone.send_invite()).header("WWW-Authenticate")
        body = {"agentId": office.agent_id, "phoneNumberId": mine, "to": "+49153"}
        call = str((await office.client.v1("POST", "calls", body))["id"])
        phone.reply(await phone.next_request("INVITE"), "401 Unauthorized", f"WWW-Authenticate: {question}")
        await phone.next_request("ACK")
        ended = await office.server.log.event("call.ended", call_id=call)
        assert ended["reason"] == "unreachable"
        await phone.options()
        assert phone.sip.received.empty()
        turned = await office.server.log.event("sip.own_challenge")
        assert (turned["source"], turned["count"]) == (phone.host, 1)
