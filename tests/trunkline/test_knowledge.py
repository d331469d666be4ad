"""A document that a real server has taken is read, even when the server is killed before it could."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.trunkline.house import Client, Server

pytestmark = pytest.mark.asyncio(loop_scope="package")
ANSWER = "A berth for a yacht of ten metres costs twenty euros a night."
FILE = f"# Fees\n\n{ANSWER}\n".encode()


async def _search(server: Server, key: str, agent_id: str) -> list[dict[str, Any]]:
    body = {"agentId": agent_id, "query": "What does a berth cost?"}
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{server.origin}/v1/knowledge/search"
    async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=headers) as response:
        assert response.status == 200
        results: list[dict[str, Any]] = (await response.json())["results"]
        return results


async def test_a_document_outlives_a_kill_and_is_removed_with_its_agent(tmp_path: Path) -> None:
    server = Server(tmp_path)
    key = await server.key()
    async with server, Client(server.origin, key, server.secrets) as client:
        agent_id = await client.agent(knowledgeSearchInstructions="For prices")
        upload = {
            "agentId": agent_id,
            "name": "Fees",
            "filename": "fees.md",
            "mimeType": "text/markdown",
            "fileSize": len(FILE),
            "fileBase64": b64encode(FILE).decode(),
        }
        made = await client.v1("POST", "knowledge", upload)
        assert made["status"] == "pending"
        await server.kill()
        await server.start()
        await server.event("knowledge.ready", document_id=made["id"])
        read = await client.v1("GET", f"knowledge/{made['id']}")
        assert (read["status"], read["chunkCount"], read["error"]) == ("ready", 1, None)
        (found,) = await _search(server, key, agent_id)
        assert found == {"content": f"Fees\n{ANSWER}", "document": "Fees", "score": found["score"]}
        path = server.data_dir / "knowledge" / made["id"]
        assert await asyncio.to_thread(path.read_bytes) == FILE
        await client.v1("DELETE", f"agents/{agent_id}")
        await server.event("knowledge.removed", document_id=made["id"])
        assert not await asyncio.to_thread(path.exists)
