"""A client of `/knowledge` and the worker that ingests the uploads."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from api.schemas.knowledge import MIME_TYPES
from calls.knowledge.ingestion import DocumentIngester
from tests.api.conftest import Api
from tests.storage.document_reader.office_files import docx, p, page_of, pdf

DOCX = MIME_TYPES[-1]
BERTH = "A berth for a yacht of ten metres costs twenty euros a night."
HOURS = "The harbour office is open from nine to five."
FILES = {
    "text/plain": f"{HOURS}\n\n{BERTH}\n".encode(),
    "text/markdown": f"# Opening hours\n\n{HOURS}\n\n# Fees\n\n{BERTH}\n".encode(),
    "text/html": f"<title>Port</title><script>x()</script><body><h1>Fees</h1><p>{BERTH}</p>".encode(),
    "text/csv": b"berth,length,fee\nA1,ten metres,twenty euros\nA2,twelve metres,thirty euros\n",
    "application/json": json.dumps({"fees": [{"berth": "A1", "length": "ten metres", "fee": "twenty euros"}]}).encode(),
    "application/pdf": pdf([page_of(HOURS), page_of(BERTH)]),
    DOCX: docx(p(HOURS) + p(BERTH)),
}


def upload(agent_id: Any, content: bytes = FILES["text/plain"], **changes: Any) -> dict[str, Any]:
    """The body of an upload; a change to ... leaves the field out."""
    body = {
        "agentId": agent_id,
        "name": "Fees",
        "filename": "fees.txt",
        "mimeType": "text/plain",
        "fileSize": len(content),
        "fileBase64": b64encode(content).decode(),
    }
    return {name: value for name, value in (body | changes).items() if value is not ...}


async def new_agent(api: Api, **fields: Any) -> str:
    created = await api.create("/agents", {"name": "Anna", "knowledgeSearchInstructions": "For prices", **fields})
    return str(created["id"])


def folder_of(api: Api) -> Path:
    return api.services.settings.data_dir / "knowledge"


def files(api: Api) -> list[str]:
    """The files of all documents."""
    return sorted(os.listdir(folder_of(api))) if folder_of(api).exists() else []


def rejected_fields(answer: tuple[int, Any]) -> list[str]:
    """The fields that a validation error names."""
    status, body = answer
    assert (status, body["error"]) == (400, "Validation failed"), body
    return [each["field"] for each in body["details"]]


async def total(api: Api) -> int:
    _, answer = await api("GET", "/knowledge")
    count: int = answer["pagination"]["total"]
    return count


@dataclass
class KnowledgeClient:
    """A client of `/knowledge` with the worker that ingests uploads, as in a server."""

    api: Api
    worker: DocumentIngester
    agent_id: str

    async def read(self, content: bytes = FILES["text/plain"], agent_id: str = "", **changes: Any) -> dict[str, Any]:
        """Upload a document and wait until it is ingested; returns the document then."""
        created = await self.api.create("/knowledge", upload(agent_id or self.agent_id, content, **changes))
        await self.worker.wait_idle()
        _, answer = await self.api("GET", f"/knowledge/{created['id']}")
        found: dict[str, Any] = answer["data"]
        return found

    async def search(self, query: str, **more: Any) -> list[dict[str, Any]]:
        status, answer = await self.api("POST", "/knowledge/search", {"agentId": self.agent_id, "query": query, **more})
        assert (status, set(answer)) == (200, {"results"}), answer
        results: list[dict[str, Any]] = answer["results"]
        return results

    async def passages(self) -> tuple[int, int]:
        """The numbers of rows of the passages and of their index."""

        def count(conn: sa.Connection) -> tuple[int, int]:
            counts = [f"SELECT count(*) FROM {name}" for name in ("knowledge_chunks", "knowledge_index")]
            chunks, index = (conn.execute(sa.text(each)).scalar_one() for each in counts)
            return chunks, index

        return await self.api.services.database.read(count)
