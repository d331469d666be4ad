"""Upgrade of a server from before the trunk policy: its trunks keep working, and with several organizations the
operator gets a list of trunks to allow or deny."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa
from alembic import command as alembic

from config.settings_tables import TrunkSettings
from storage.database import migrations
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.server_process import Server
from tests.trunkline.sip_phone import known
from tests.trunkline.tenants import Tenant, is_answered, listed, run, tenant

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERS, HIS = "127.0.0.71", "127.0.0.72"
KEYS = {"ann": "tk_0000000a_" + "a" * 43, "bob": "tk_0000000b_" + "b" * 43}
NUMBERS = """
INSERT INTO phone_numbers (id, organization_id, number, provider, sip_mode, source, sip_ip, sip_sources, metadata,
                           carrier_credentials_encrypted, sip_qualify_seconds, created_at, updated_at) VALUES
    ('00000000-0000-4000-8000-0000000000a1', 'ann', '700', 'sip', 'ip_allowlist', '127.0.0.71', '127.0.0.71', '[]',
     '{}', '{}', 0, 1, 1),
    ('00000000-0000-4000-8000-0000000000b1', 'bob', '800', 'sip', 'ip_allowlist', '127.0.0.72', '127.0.0.72',
     '["127.0.0.0/9"]', '{}', '{}', 0, 2, 2),
    ('00000000-0000-4000-8000-0000000000b2', 'bob', '701', 'sip', 'ip_allowlist', '127.0.0.72', '127.0.0.72',
     '["127.0.0.0/9"]', '{}', '{}', 0, 3, 3);
INSERT INTO phone_number_sources (phone_number_id, source, since) VALUES
    ('00000000-0000-4000-8000-0000000000a1', '127.0.0.71', 1),
    ('00000000-0000-4000-8000-0000000000b1', '127.0.0.72', 2),
    ('00000000-0000-4000-8000-0000000000b1', '127.0.0.0/9', 2),
    ('00000000-0000-4000-8000-0000000000b2', '127.0.0.72', 3),
    ('00000000-0000-4000-8000-0000000000b2', '127.0.0.0/9', 3);
"""
ANNS, BOBS = "00000000-0000-4000-8000-0000000000a1", "00000000-0000-4000-8000-0000000000b1"


def old_database(path: Path, *names: str) -> None:
    """Create a database of the version before, with organizations, their keys and their numbers."""
    path.unlink()
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool)
    with engine.begin() as conn:
        settings = migrations.alembic_settings()
        settings.attributes["connection"] = conn
        alembic.upgrade(settings, "0012")
    with closing(sqlite3.connect(path)) as connection, connection:
        for name, key in (each for each in KEYS.items() if each[0] in names):
            connection.execute(
                "INSERT INTO organizations (id, name, plan, balance, created_at) VALUES (?, ?, 'free', 0, 1)",
                (name, name),
            )
            connection.execute(
                "INSERT INTO api_keys (id, organization_id, prefix, sha256, requests_per_minute, created_at) "
                "VALUES (?, ?, ?, ?, 100000, 1)",
                (f"key of {name}", name, key[:11], sha256(key.encode()).hexdigest()),
            )
        connection.executescript(NUMBERS)
        for number_id, owner in connection.execute("SELECT id, organization_id FROM phone_numbers").fetchall():
            if owner not in names:
                connection.execute("DELETE FROM phone_number_sources WHERE phone_number_id = ?", (number_id,))
                connection.execute("DELETE FROM phone_numbers WHERE id = ?", (number_id,))


@dataclass
class TwoTenants:
    """The server after its upgrade, and its organizations."""

    server: Server
    ann: Tenant
    bob: Tenant


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenants(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TwoTenants]:
    server = Server(tmp_path_factory.mktemp("upgraded"), trunks={"policy": "auto"})
    old_database(server.data_dir / "trunkline.db", *KEYS)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        ann, bob = [await stack.enter_async_context(tenant(server, name, key)) for name, key in KEYS.items()]
        for each, number_id in ((ann, ANNS), (bob, BOBS)):
            await each.client.v1("PATCH", f"phone-numbers/{number_id}", {"agentId": each.agent_id})
        yield TwoTenants(server, ann, bob)


async def test_the_start_logs_the_trunks_that_the_operator_has_to_decide_on(tenants: TwoTenants) -> None:
    [line] = tenants.server.log.all("trunks.to_decide")
    assert (line["organizations"], line["numbers"], line["policy"]) == (2, 3, "auto")
    assert "trunkline trunk list" in line["remedy"]
    rows = await listed(tenants.server, "trunk", "list")
    assert [(each["organization"], each["trunk"], each["state"], each["numbers"]) for each in rows] == [
        ("ann", HERS, "taken over", ["700"]),
        ("bob", "127.0.0.0/9", "taken over", ["800", "701"]),
        ("bob", HIS, "taken over", ["800", "701"]),
    ]


async def test_existing_numbers_are_called_and_call(tenants: TwoTenants) -> None:
    for owner, number_id, host, number in ((tenants.ann, ANNS, HERS, "700"), (tenants.bob, BOBS, HIS, "800")):
        async with RawPhone(tenants.server.target, host) as phone:
            await is_answered(phone, number)
            await owner.client.v1("PATCH", f"phone-numbers/{number_id}", {"sipPort": phone.sip.port})
            await owner.dials(number_id, "+41445550199")
            callee = await RawCallee.wait_for_invite(phone)
            assert callee.number == "+41445550199"
            callee.reject("486 Busy Here")
        assert (await owner.trunk_status(number_id))[0] == "listening"


async def test_new_trunks_need_a_grant_which_overrides_an_existing_use(tenants: TwoTenants) -> None:
    """Bob has 701 from a network that contains Ann's trunk; after the grant of Ann's trunk, calls from it are Ann's."""
    ann, bob, server = tenants.ann, tenants.bob, tenants.server
    assert await bob.refused_fields({"number": "900", "sipIp": HERS}) == ["sipIp"]
    assert await ann.refused_fields({"number": "701", "sipIp": HERS}) == ["sipIp"]
    await run(server, "trunk", "allow", "ann", HERS)
    await ann.client.number("701", ann.agent_id, sipIp=HERS)
    await known(server.target, HERS)
    since = server.log.mark()
    async with RawPhone(server.target, HERS) as phone:
        await is_answered(phone, "701")
    taken = await server.event("call.incoming", since=since, number="701")
    assert taken["agent"] == ann.agent_id
    denied = await listed(server, "trunk", "deny", "bob", "127.0.0.0/9")
    assert [each["numbers"] for each in denied if each["state"] == "denied"] == [["800", "701"]]
    async with RawPhone(server.target, HIS) as phone:
        since = server.log.mark()
        phone.invite(phone.dialog(), phone.offer())
        await server.event("sip.unknown_source", since=since, source=HIS)


async def test_with_one_organization_there_is_nothing_to_decide(tmp_path: Path) -> None:
    server = Server(tmp_path, trunks={"policy": TrunkSettings().policy})
    await asyncio.to_thread(old_database, server.data_dir / "trunkline.db", "ann")
    async with server, tenant(server, "ann", KEYS["ann"]) as ann:
        await ann.client.v1("PATCH", f"phone-numbers/{ANNS}", {"agentId": ann.agent_id})
        login = {"sipMode": "registration", "sipUsername": "ann", "sipPassword": "hush"}
        around = {"sipSources": ["10.0.0.0/8", "sbc.example.invalid"], "sipOutboundProxy": "192.168.1.1"}
        for number, trunk in (
            ("701", {"sipIp": "127.0.0.1", "sipPort": 5090}),
            ("702", {"sipIp": "192.168.1.1", **around, "sipQualifySeconds": 0}),
            ("703", {**login, "sipProxy": "127.0.0.1:5099"}),
        ):
            await ann.client.number(number, ann.agent_id, **trunk)
        async with RawPhone(server.target, HERS) as phone:
            await is_answered(phone, "700")
            await ann.client.v1("PATCH", f"phone-numbers/{ANNS}", {"sipPort": phone.sip.port})
            await ann.dials(ANNS, "+41445550199")
            callee = await RawCallee.wait_for_invite(phone)
            assert callee.number == "+41445550199"
            callee.reject("486 Busy Here")
        assert server.log.all("trunks.to_decide") == server.log.all("trunk.refused") == []
        assert (await run(server, "trunk", "list")).splitlines()[0] == "policy: open (auto)"
