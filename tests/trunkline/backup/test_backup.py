"""Backup of a running server, and a second server on the restored data."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import sqlalchemy as sa

from storage.accounts import api_keys, organizations
from tests.trunkline.api_client import Client
from tests.trunkline.conftest import Office
from tests.trunkline.recording_analysis import read_wav
from tests.trunkline.server_process import Server, command
from tests.trunkline.sip_phone import calling
from trunkline.backup.restore_journal import JOURNAL

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(120)]
FEES = b"# Fees\n\nA berth for a yacht of ten metres costs twenty euros a night.\n"


async def _document(office: Office) -> dict[str, Any]:
    """Upload a document to a new agent, and wait for its ingestion."""
    agent_id = await office.client.agent(name="Berths", knowledgeSearchInstructions="For prices")
    about = {"agentId": agent_id, "name": "Fees", "filename": "fees.md", "mimeType": "text/markdown"}
    content = {"fileSize": len(FEES), "fileBase64": b64encode(FEES).decode()}
    made: dict[str, Any] = await office.client.v1("POST", "knowledge", about | content)
    await office.server.event("knowledge.ready", document_id=made["id"])
    return made


async def _found(origin: str, key: str, agent_id: str) -> Any:
    body = {"agentId": agent_id, "query": "What does a berth cost?"}
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{origin}/v1/knowledge/search"
    async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=headers) as response:
        return (await response.json())["results"]


async def _make_call(office: Office, number: str = "100") -> str:
    """Make a short call; returns its id."""
    since = office.server.log.mark()
    async with calling(office.server.target, number) as call:
        await call.has_heard(25)
        await call.hang_up()
    return str((await office.server.event("call.ended", since=since))["call_id"])


async def _key(office: Office) -> str:
    """Create another API key of the organization."""

    def create(conn: sa.Connection) -> str:
        owner = organizations.by_name(conn, "office")
        assert owner is not None
        return api_keys.create(conn, owner.id, requests_per_minute=100_000)[1]

    async with office.server.database() as database:
        return await database.write(create)


async def test_a_server_on_a_restored_backup_has_all_data_of_the_first_one(office: Office, tmp_path: Path) -> None:
    first, archive = office.server, tmp_path / "backup.tar"
    key, document, delivered = await _key(office), await _document(office), await _make_call(office)
    await first.event("webhook.delivered", call_id=delivered)
    await office.client.number("198", await office.client.agent(postCallWebhookUrl="http://127.0.0.1:9/nobody"))
    waiting = await _make_call(office, "198")
    await first.event("webhook.failed", call_id=waiting)  # the second attempt follows in a minute
    since = first.log.mark()
    async with calling(first.target) as live:
        live_id = (await first.event("call.answered", since=since))["call_id"]
        await live.has_heard(60)
        status, out, said = await command("backup", str(archive), folder=tmp_path, environment=first.environment)
        assert (status, out) == (0, ""), said
        assert "the backup contains the secret key" in said
        await live.hang_up()
    await first.event("call.ended", call_id=live_id)
    await first.event("webhook.delivered", call_id=live_id)
    paths = [
        "agents?limit=100", "background-sounds", f"knowledge?agentId={document['agentId']}", f"calls/{delivered}",
        f"calls/{delivered}/webhook-deliveries", f"calls/{waiting}/webhook-deliveries",
    ]  # fmt: skip
    told = [await office.client.v1("GET", path) for path in paths]
    found = await _found(first.origin, key, document["agentId"])
    sound = await office.client.recording(delivered)

    second = Server(tmp_path, fresh=True, standby=True)
    status, out, said = await command("restore", str(archive), folder=tmp_path, environment=second.environment)
    assert (status, out) == (0, ""), said
    assert re.search(r"a start sends [1-9]\d* pending webhook attempts", said)
    await asyncio.to_thread(_interrupt_restore, second.data_dir)
    async with second, Client(second.origin, key, second.secrets) as client:
        assert second.log.all("restore.finished")
        for path, before in zip(paths, told, strict=True):
            assert _without_address(await client.v1("GET", path), second) == _without_address(before, first)
        assert await client.recording(delivered) == sound
        assert await _found(second.origin, key, document["agentId"]) == found
        attempts = await client.v1("GET", f"calls/{waiting}/webhook-deliveries")
        assert [(each["attempt"], each["status"]) for each in attempts] == [(2, "pending"), (1, "failed")]
        cut_off = await client.call(live_id)
        assert (cut_off["status"], cut_off["endedReason"]) == ("completed", "server_restart")
        rate, sides = read_wav(await client.recording(live_id))
        assert len(sides) >= rate // 2, "what had been heard when the backup was made"
        numbers = await client.v1("GET", "phone-numbers?limit=100")
        assert {number["number"] for number in numbers} >= {"100", "101", "102"}
        assert not second.log.all("webhook.delivered"), "it is on standby"
    told_of = [json.loads(body)["callId"] for _, body in office.receiver.received]
    assert [told_of.count(each) for each in (delivered, live_id)] == [1, 1], "by the first server alone"


def _interrupt_restore(data_dir: Path) -> None:
    """Set up a restore that was interrupted before its last move."""
    there, ready = data_dir / "recordings", data_dir / "ready"
    there.rename(ready)
    (data_dir / JOURNAL).write_text(json.dumps({"aside": [], "inPlace": [[str(ready), str(there)]]}))


def _without_address(answer: Any, server: Server) -> str:
    """A response without the server's address and without the signatures of its links."""
    return re.sub(r"(expires|signature)=[^&\"]*", "", json.dumps(answer).replace(server.origin, ""))
