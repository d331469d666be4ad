"""The document that the demo's agent answers from: a real file, uploaded as any integrator would."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

from config.errors import StartupError
from trunkline.demo.api_client import Api

FILE: Final = Path(__file__).with_name("document.html")
NAME: Final = "Good to know"
INSTRUCTIONS: Final = "Payment, parking and children"
LOOK_EVERY_S: Final = 0.05
READ_WITHIN_S: Final = 30.0


async def upload(api: Api, agent_id: str) -> dict[str, Any]:
    """Put the file in the place of the one that an earlier demo has left, and wait until it is read. Raises
    `StartupError` when it is not."""
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
    async with asyncio.timeout(READ_WITHIN_S):
        while document["status"] in ("pending", "processing"):
            await asyncio.sleep(LOOK_EVERY_S)
            document = await api.request("GET", f"knowledge/{document['id']}")
    if document["status"] != "ready":
        raise StartupError(f"the document {FILE.name} could not be read: {document['error']}")
    return document


def line_of(document: dict[str, Any]) -> str:
    """What the demo says of it."""
    return (
        f"Uploaded {document['filename']} ({document['fileSize']} bytes): {document['status']}, "
        f"{document['chunkCount']} passages"
    )
