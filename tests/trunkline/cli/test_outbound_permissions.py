"""Outbound permissions on the command line: prefixes and rate of an organization, and its audit log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trunkline.api_client import Client
from tests.trunkline.conftest import Office
from tests.trunkline.server_process import command

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_outbound_calls_are_limited_by_org_set_and_listed_by_audit(office: Office, tmp_path: Path) -> None:
    async def run(*arguments: str) -> str:
        code, out, err = await command(*arguments, folder=tmp_path, environment=office.server.environment)
        assert code == 0, err
        return out.strip()

    await run("org", "create", "Harbour")
    key = await run("key", "create", "--org", "Harbour")
    office.server.secrets.add(key)
    await run("org", "set", "Harbour", "--prefixes", "+49", "--calls-per-minute", "1")
    async with Client(office.server.origin, key, set()) as client:
        agent = await client.agent()
        number = await client.v1("POST", "phone-numbers", {"number": "+4940100", "provider": "sip"})
        call = {"agentId": agent, "phoneNumberId": number["id"]}
        wanted = ("+18005550100", "+49301", "+49301")
        assert [await client.status("POST", "calls", call | {"to": to}) for to in wanted] == [400, 201, 429]
    told: list[dict[str, Any]] = [json.loads(line) for line in (await run("audit", "--json")).splitlines()]
    mine = [each for each in told if each["organization"] == "Harbour" and "verdict" in each]
    assert [each["verdict"] for each in mine] == ["refused_prefix", "queued", "refused_rate"]
    assert {(each["apiKey"], each["client"], each["number"]) for each in mine} == {(key[:11], "127.0.0.1", "+4940100")}
    lines = (await run("audit", "--org", "Harbour", "--since", mine[1]["at"])).splitlines()
    asked = [each for each in lines if "-> +49301" in each]
    assert len(asked) == 2
    assert all(word in asked[0] for word in ("queued", key[:11], "+4940100 -> +49301", "failed, unreachable"))
    assert await run("audit", "--org", "Harbour", "--since", "2100-01-01") == ""
    assert key not in "\n".join(lines)
