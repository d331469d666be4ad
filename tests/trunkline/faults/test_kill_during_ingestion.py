"""An uploaded document is ingested after the next start if the server is killed before its ingestion."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from models.model_files.known_models import OPERATOR_LIST
from tests.models.embeddings import tiny_embeddings
from tests.trunkline.api_client import Client
from tests.trunkline.server_process import Server

pytestmark = pytest.mark.asyncio(loop_scope="package")
ANSWER = "A berth for a yacht of ten metres costs twenty euros a night."
FILE = f"# Fees\n\n{ANSWER}\n".encode()


SAME = (
    "berth mooring", "bus entrance office", "car parking", "dog pets", "parcel deliveries", "cards payment",
    "password login", "rains weather", "meat vegetarian", "money refunded", "job applications", "screen device",
    "pool baths",
)  # fmt: skip
"""Synonyms of the test's embedding model; with them it passes the model's trial."""


def _put_model(server: Server) -> None:
    """Install an embedding model, as `trunkline models pull` does."""
    folder, models = server.data_dir / "tiny", server.data_dir / "models"
    tiny_embeddings.write(folder, SAME, ())
    models.mkdir(exist_ok=True)
    (models / OPERATOR_LIST).write_text(json.dumps([tiny_embeddings.ENTRY]))
    tiny_embeddings.install(folder, models)


async def _search(
    server: Server, key: str, agent_id: str, query: str = "What does a berth cost?"
) -> list[dict[str, Any]]:
    body = {"agentId": agent_id, "query": query}
    headers = {"Authorization": f"Bearer {key}"}
    url = f"{server.origin}/v1/knowledge/search"
    async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=headers) as response:
        assert response.status == 200
        results: list[dict[str, Any]] = (await response.json())["results"]
        return results


async def test_a_document_survives_a_kill_and_is_removed_with_its_agent(tmp_path: Path) -> None:
    server = Server(tmp_path)
    await asyncio.to_thread(_put_model, server)
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
        assert (found["content"], found["document"]) == (f"Fees\n{ANSWER}", "Fees")
        await server.event("knowledge.vectors_made", content_id=made["id"], model="tiny", passages=1)
        async with asyncio.timeout(30):  # a search that has no time for meaning goes by words
            while not (meant := await _search(server, key, agent_id, "How much is a mooring?")):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert meant[0]["content"] == found["content"]
        path = server.data_dir / "knowledge" / made["id"]
        assert await asyncio.to_thread(path.read_bytes) == FILE
        await client.v1("DELETE", f"agents/{agent_id}")
        await server.event("knowledge.removed", document_id=made["id"])
        assert not await asyncio.to_thread(path.exists)
