"""Trunk policy with a complete server over SIP: two organizations, and the operator's grants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.peers.dnsmasq import NameServer
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.server_process import Server, command
from tests.trunkline.sip_phone import dialled, known
from tests.trunkline.tenants import Tenant, is_answered, listed, run, tenant

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERS, SHARED, DENIED = "127.0.0.61", "127.0.0.62", "127.0.0.63"
NOT_GIVEN = "the operator has not given this trunk to the organization"
ELSEWHERE = "its host name leads to an address that the operator has not given to the organization"


@dataclass
class TwoTenants:
    """A server with two organizations, and its name server."""

    server: Server
    names: NameServer
    ann: Tenant
    bob: Tenant


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenants(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TwoTenants]:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(NameServer(f"host-record=evil.test,{HERS}"))
        host, port = names.address
        server = Server(
            tmp_path_factory.mktemp("tenants"), trunks={"policy": "auto"}, sip={"nameservers": [f"{host}:{port}"]}
        )
        keys = [await server.key(name) for name in ("ann", "bob")]
        await stack.enter_async_context(server)
        ann, bob = [
            await stack.enter_async_context(tenant(server, name, key))
            for name, key in zip(("ann", "bob"), keys, strict=True)
        ]
        await run(server, "trunk", "allow", "ann", HERS)
        yield TwoTenants(server, names, ann, bob)


async def test_an_organization_cannot_call_through_anothers_trunk(tenants: TwoTenants) -> None:
    """Toll fraud by the trunk's address, by a registration at it, and by a host name that resolves to it."""
    number_id = await tenants.ann.client.number("900", tenants.ann.agent_id, sipIp=HERS)
    await known(tenants.server.target, HERS)
    bob = tenants.bob
    assert await bob.refused_fields({"number": "901", "sipIp": HERS}) == ["sipIp"]
    login = {"sipMode": "registration", "sipUsername": "bob", "sipPassword": "hush"}
    assert await bob.refused_fields({"number": "901", **login, "sipProxy": f"{HERS}:5060"}) == ["sipProxy"]
    assert await bob.refused_fields({"number": "901", "sipIp": "evil.test"}) == ["sipIp"]
    await run(tenants.server, "trunk", "allow", "bob", "evil.test")
    async with RawPhone(tenants.server.target, HERS) as phone:
        trunk = {"sipIp": "evil.test", "sipPort": phone.sip.port, "sipQualifySeconds": 10}
        evil_id = await bob.client.number("901", bob.agent_id, **trunk)
        since = tenants.server.log.mark()
        call_id = await bob.dials(evil_id, "+41445550199")
        ended = await tenants.server.event("call.ended", since=since, call_id=call_id)
        assert (ended["status"], ended["reason"]) == ("failed", "unreachable")
        assert await bob.trunk_status(evil_id) == ("failed", ELSEWHERE)
        await tenants.ann.client.v1("PATCH", f"phone-numbers/{number_id}", {"sipPort": phone.sip.port})
        await tenants.ann.dials(number_id, "+41445550100")
        callee = await RawCallee.wait_for_invite(phone)  # nothing of bob's has come before: no OPTIONS, no INVITE
        assert callee.number == "+41445550100"
        callee.reject("486 Busy Here")
        await is_answered(phone, "900")
        phone.invite(dialled(phone, "901"), phone.offer())
        assert (await phone.final_response("INVITE")).status == 404


async def test_a_status_discloses_nothing_about_addresses_that_are_not_granted(tenants: TwoTenants) -> None:
    """No port scan of this machine: neither a response nor an error of the address is visible."""
    bob = tenants.bob
    assert await bob.refused_fields({"number": "902", "sipIp": "127.0.0.1", "sipPort": 22}) == ["sipIp"]
    await tenants.names.set_records(f"host-record=evil.test,{HERS}", "host-record=scan.test,127.0.0.1")
    await run(tenants.server, "trunk", "allow", "bob", "scan.test")
    open_port, closed_port = tenants.server.api_port, tenants.server.api_port + 1
    statuses = set()
    for number, port in (("903", open_port), ("904", closed_port)):
        trunk = {"sipIp": "scan.test", "sipPort": port, "sipProtocol": "tcp", "sipQualifySeconds": 10}
        number_id = await bob.client.number(number, None, **trunk)
        async with asyncio.timeout(10):
            while (status := await bob.trunk_status(number_id))[0] != "failed":
                pass  # the address of a name is not disclosed; each poll is a request to the server
        statuses.add(status)
    assert statuses == {("failed", ELSEWHERE)}


async def test_a_revoked_trunk_is_not_used_for_new_calls_and_live_calls_continue(tenants: TwoTenants) -> None:
    server, ann = tenants.server, tenants.ann
    await run(server, "trunk", "allow", "ann", f"{DENIED}/32", "--number", "91*")
    assert await ann.refused_fields({"number": "920", "sipIp": DENIED}) == ["number"]
    async with RawPhone(server.target, DENIED) as phone:
        number_id = await ann.client.number("910", ann.agent_id, sipIp=DENIED, sipPort=phone.sip.port)
        await known(server.target, DENIED)
        dialog = dialled(phone, "910")
        phone.invite(dialog, phone.offer())
        await phone.complete_invite(dialog)
        taken = await listed(server, "trunk", "deny", "ann", DENIED)
        assert [(each["trunk"], each["state"]) for each in taken] == [(DENIED, "denied"), (DENIED, "refused")]
        assert await ann.trunk_status(number_id) == ("failed", NOT_GIVEN)
        body = {"agentId": ann.agent_id, "phoneNumberId": number_id, "to": "+41445550199"}
        status, answer = await ann.answer("POST", "calls", body)
        assert (status, [each["field"] for each in answer["details"]]) == (403, ["phoneNumberId"])
        since = server.log.mark()
        async with RawPhone(server.target, DENIED) as denied_source:
            denied_source.invite(dialled(denied_source, "910"), denied_source.offer())
            await server.event("sip.unknown_source", since=since, source=DENIED)
            assert denied_source.sip.received.empty()
        await phone.bye(dialog)
        await run(server, "trunk", "allow", "ann", DENIED)
        await known(server.target, DENIED)
        await is_answered(phone, "910")


async def test_grants_are_listed_and_their_changes_are_in_the_audit_log(tenants: TwoTenants) -> None:
    server = tenants.server
    await run(server, "trunk", "allow", "ann", "SBC.example.", "--number", "+4930*")
    await run(server, "trunk", "allow", "ann", "sbc.example", "--number", "+4930*")
    [row] = [each for each in await listed(server, "trunk", "list") if each["trunk"] == "sbc.example"]
    assert row.pop("since") is not None
    assert row == {
        "organization": "ann",
        "trunk": "sbc.example",
        "numberPattern": "+4930*",
        "state": "allowed",
        "numbers": [],
    }
    table = await run(server, "trunk", "list", "--org", "ann")
    assert table.splitlines()[0] == "policy: approved (auto)"
    assert any(line.split()[:4] == ["ann", "sbc.example", "+4930*", "allowed"] for line in table.splitlines())
    assert "bob" not in table
    await run(server, "trunk", "deny", "ann", "sbc.example")
    entries = [each for each in await listed(server, "audit", "--org", "ann") if "action" in each]
    mine = [(each["action"], each["detail"]) for each in entries if "sbc.example" in (each["detail"] or "")]
    detail = "sbc.example for numbers +4930*"
    assert mine == [("trunk.allow", detail), ("trunk.deny", detail)]
    assert all(each["actor"] and each["at"] and each["organization"] == "ann" for each in entries)
    assert f"trunk.allow       ann  {entries[-1]['actor']}" in await run(server, "audit", "--org", "ann")


async def test_an_invalid_grant_is_rejected_in_one_line(tenants: TwoTenants) -> None:
    unicast, form = "takes a unicast address: ", "takes an IP address, a network such as 192.0.2.0/24, or a host name"
    nobody = "trunkline: there is no organization 'nobody': see `trunkline org list`"
    cases: list[tuple[list[str], int, str]] = [
        (["allow", "nobody", HERS], 1, nobody),
        (["list", "--org", "nobody"], 1, nobody),
        (["deny", "bob", "198.51.100.9"], 1, "trunkline: 198.51.100.9 was not granted to this organization: see"),
        (["allow", "bob", "224.0.0.1"], 2, f"{unicast}224.0.0.1 is multicast"),
        (["allow", "bob", "169.254.169.254"], 2, f"{unicast}169.254.169.254 is a metadata service"),
        (["allow", "bob", "0.0.0.0/8"], 2, f"{unicast}0.0.0.0/8 is this network"),
        (["allow", "bob", "pbx.example:5060"], 2, form),
        (["allow", "bob", "192.0.2.0/33"], 2, form),
        (["allow", "bob", HERS, "--number", "+49[0]"], 2, "takes digits, * (any digits) and ? (one digit)"),
    ]
    errors = await asyncio.gather(*(run(tenants.server, "trunk", *each, status=status) for each, status, _ in cases))
    for (_, _, complaint), error in zip(cases, errors, strict=True):
        assert complaint in error.splitlines()[-1]


async def test_creating_a_second_organization_prints_a_note_about_trunks(tenants: TwoTenants) -> None:
    """`org create` on an empty data directory, without a server."""
    folder = Server(tenants.server.data_dir.parent / "fresh", trunks={"policy": "auto"})
    folder.data_dir.parent.mkdir(exist_ok=True)

    async def create(name: str) -> str:
        code, out, err = await command(
            "org", "create", name, folder=folder.data_dir.parent, environment=folder.environment
        )
        assert code == 0 and len(out.split()) == 1, err
        return err

    assert await create("first") == ""
    second = await create("second")
    assert second.startswith(
        "note: with a second organization, trunks need the operator's approval from now on ([trunks] policy)"
    )
    assert "trunkline trunk allow" in second and "trunkline trunk list" in second
    third = await create("third one")
    assert third.strip() == "note: numbers of third one need `trunkline trunk allow 'third one' HOST-OR-NETWORK`"
