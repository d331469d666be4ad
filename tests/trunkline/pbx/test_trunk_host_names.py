"""Trunks by host name and by network, with a DNS server: inbound and outbound calls, and `sipStatus`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sipcore.trunks import qualify
from tests.peers.dnsmasq import NameServer
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import dialled, known

pytestmark = pytest.mark.asyncio(loop_scope="module")

SBC, BRANCH = "127.0.0.81", "127.0.0.82"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[NameServer]:
    async with NameServer() as servers:
        yield servers


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory, servers: NameServer) -> AsyncIterator[LocalServer]:
    host, port = servers.address
    async with open_local_server(
        tmp_path_factory.mktemp("server"), sip={"nameservers": [f"{host}:{port}"]}
    ) as local_server:
        yield local_server


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qualify, "MAX_FIRST_DELAY_S", 0.1)


def accept(raw: RawPhone, request: Message) -> None:
    lines = [line for name in ("Via", "From", "Call-ID", "CSeq") for line in request.headers(name)]
    to = f"To: {request.header('To')};tag=x"
    raw.send("\r\n".join(["SIP/2.0 200 OK", *lines, to, "Content-Length: 0", "", ""]).encode())


async def wait_qualified(local_server: LocalServer, number_id: str) -> dict[str, Any]:
    """Wait until the number's trunk has responded to OPTIONS; returns the number."""
    async with asyncio.timeout(10):
        while True:
            numbers = await local_server.client.v1("GET", "phone-numbers?limit=50")
            number: dict[str, Any] = next(each for each in numbers if each["id"] == number_id)
            if (number["sipStatusDetail"] or "").startswith("answers OPTIONS in "):
                return number


async def test_a_trunk_by_srv_is_called_calls_and_is_qualified(local_server: LocalServer, servers: NameServer) -> None:
    async with RawPhone(local_server.target, SBC) as sbc:
        await servers.set_records(
            f"srv-host=_sip._udp.pbx.test,sbc.pbx.test,{sbc.sip.port},10,1",
            f"host-record=sbc.pbx.test,{SBC}",
            "host-record=pbx.test,127.0.0.99",
        )
        agent_id = await local_server.client.agent(systemPrompt="Hello.")
        number_id = await local_server.client.number("881", agent_id, sipIp="pbx.test", sipQualifySeconds=60)
        while not (request := await sbc.next_message()).first_line.startswith("OPTIONS"):
            pass
        accept(sbc, request)
        told = await wait_qualified(local_server, number_id)
        assert told["sipStatus"] == "listening"

        await known(local_server.target, SBC)
        await known(local_server.target, "127.0.0.99")
        dialog = dialled(sbc, "881")
        sbc.invite(dialog, sbc.offer())
        await sbc.complete_invite(dialog)
        await sbc.bye(dialog)

        body = {"agentId": agent_id, "phoneNumberId": number_id, "to": "+41445550199"}
        await local_server.client.v1("POST", "calls", body)
        callee = await RawCallee.wait_for_invite(sbc)
        assert callee.number == "+41445550199"
        callee.reject("486 Busy Here")


async def test_a_network_is_a_source_and_other_addresses_are_unknown(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Hello.")
    await local_server.client.number(
        "882", agent_id, sipIp="192.0.2.1", sipSources=["127.0.0.82/31"], sipQualifySeconds=0
    )
    await known(local_server.target, BRANCH)
    for host in (BRANCH, "127.0.0.83"):
        async with RawPhone(local_server.target, host) as raw:
            dialog = dialled(raw, "882")
            raw.invite(dialog, raw.offer())
            await raw.complete_invite(dialog)
            await raw.bye(dialog)
    since = local_server.log.mark()
    async with RawPhone(local_server.target, "127.0.0.84") as stranger:
        stranger.invite(dialled(stranger, "882"), stranger.offer())
        await local_server.log.event("sip.unknown_source", since=since, source="127.0.0.84")
        assert "127.0.0.84" in [each.address for each in local_server.server.endpoint.unknown_sources.latest()]
        assert stranger.sip.received.empty()


async def test_a_call_to_an_unknown_host_name_ends_as_unreachable(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Hello.")
    number_id = await local_server.client.number("883", None, sipIp="nowhere.test", sipQualifySeconds=0)
    body = {"agentId": agent_id, "phoneNumberId": number_id, "to": "+41445550199"}
    call = await local_server.client.v1("POST", "calls", body)
    ended = await local_server.ended(str(call["id"]))
    assert (ended["status"], ended["endedReason"]) == ("failed", "unreachable")
    assert local_server.log.all("trunks.host_unknown", host="nowhere.test")


async def test_metrics_count_the_guards_drops(local_server: LocalServer) -> None:
    _, metrics = await local_server.client.get("/metrics")
    lines = [line for line in metrics.decode().splitlines() if line.startswith("trunkline_sip_turned_away_total{")]
    counts = {line.split('"')[1]: float(line.split()[-1]) for line in lines}
    assert counts.keys() == {
        "unknown_source", "garbage", "too_many_invites", "too_many_connections", "slow_connection",
        "own_challenge", "media_refused", "media_elsewhere",
    }  # fmt: skip
    assert counts["unknown_source"] >= 1
