"""The knowledge document of the demo's agent: an HTML file that is uploaded over the API."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

from config.errors import StartupError
from trunkline.demo.api_client import ApiClient

FILE: Final = Path(__file__).with_name("document.html")
NAME: Final = "Good to know"
INSTRUCTIONS: Final = "Payment, parking and children"
POLL_EVERY_S: Final = 0.05
INGESTION_TIMEOUT_S: Final = 30.0


async def upload(api: ApiClient, agent_id: str) -> dict[str, Any]:
    """Replace the agent's documents by the file, and wait until it is ingested; returns the document. Raises
    `StartupError` if that fails."""
    for old in await api.request("GET", f"knowledge?agentId={agent_id}"):
        await api.request("DELETE", f"knowledge/{old['id']}")
    content = await asyncio.to_thread(FILE.read_bytes)
    document: dict[str, Any] = await api.request(
        "POST",
        "knowledge",
        {
            "agentId": agent_id,
            "name": NAME,
            "filename": FILE.name,
            "mimeType": "text/html",
            "fileSize": len(content),
            "fileBase64": b64encode(content).decode(),
        },
    )
    async with asyncio.timeout(INGESTION_TIMEOUT_S):
        while document["status"] in ("pending", "processing"):
            await asyncio.sleep(POLL_EVERY_S)
            document = await api.request("GET", f"knowledge/{document['id']}")
    if document["status"] != "ready":
        raise StartupError(f"the document {FILE.name} could not be read: {document['error']}")
    return document


def describe(document: dict[str, Any]) -> str:
    """A line with the document's file, size, state and number of passages."""
    return (
        f"Uploaded {document['filename']} ({document['fileSize']} bytes): {document['status']}, "
        f"{document['chunkCount']} passages"
    )
