"""Writes the data directory of this version as a backup, `released/VERSION.tar.gz`, which every later version must open
(`test_released_data.py`): `python -m tests.trunkline.upgrade.make_release_data`, once for each release.

A server of this version stores an agent, a tool, numbers, a document, a sound, calls with a recording, a transfer and
webhooks; tables that are empty then get a row each.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from base64 import b64encode
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from config import secrets
from config.settings import Settings
from tests.trunkline.conftest import Office, open_office
from tests.trunkline.server_process import Server
from tests.trunkline.sip_phone import calling
from trunkline.backup.backup import back_up

RELEASED = Path(__file__).parent / "released"
SOUND_S = 0.5
DOCUMENT = b"# Fees\n\nA berth for a yacht of ten metres costs twenty euros a night.\n"
TOOL = {
    "name": "berths", "description": "Looks up free berths", "type": "http",
    "config": {
        "url": "https://harbour.example/berths", "method": "GET",
        "headers": [{"key": "X-Key", "value": "letmein"}],
    },
}  # fmt: skip
INTERNAL = ("sqlite_%", "alembic_version", "knowledge_index%")


def _wav(seconds: float) -> bytes:
    data = (np.sin(np.arange(int(8000 * seconds)) * 0.3) * 9000).astype("<i2").tobytes()
    format_ = b"fmt " + b"\x10\0\0\0\x01\0\x01\0" + (8000).to_bytes(4, "little") + (16000).to_bytes(4, "little")
    body = b"WAVE" + format_ + b"\x02\0\x10\0" + b"data" + len(data).to_bytes(4, "little") + data
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def _file(name: str, mime_type: str, content: bytes) -> dict[str, Any]:
    fields = {"name": name, "filename": name, "mimeType": mime_type, "fileSize": len(content)}
    return {**fields, "fileBase64": b64encode(content).decode()}


async def _store(office: Office) -> None:
    """Store a row of most tables by the API and by a call."""
    client, event = office.client, office.server.event
    await client.v1("POST", "tools", TOOL)
    await client.v1("POST", "background-sounds", _file("hum.wav", "audio/wav", _wav(SOUND_S)))
    target = {"name": "Sales", "description": "Prices", "number": "555", "mode": "warm_briefing"}
    await client.v1(
        "PATCH", f"agents/{office.agent_id}", {"transferTargets": [target], "knowledgeSearchInstructions": "For prices"}
    )
    document = {"agentId": office.agent_id, **_file("fees.md", "text/markdown", DOCUMENT)}
    made = await client.v1("POST", "knowledge", document)
    await event("knowledge.ready", document_id=made["id"])
    async with calling(office.server.target, "100") as call:
        call_id = (await event("call.answered"))["call_id"]
        await call.has_heard(25)
        await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Sales", "reason": "Prices"})
        await event("transfer.ended", timeout_s=60)
        await call.hang_up()
    await event("webhook.delivered", call_id=call_id)


def _fill_empty_tables(data_dir: Path) -> None:
    """Insert a row into each table without rows; and remove the preset sounds, which a start installs."""
    key = secrets.load_or_create(data_dir / "secret.key")
    with closing(sqlite3.connect(data_dir / "trunkline.db")) as conn, conn:
        conn.execute("DELETE FROM background_sounds WHERE organization_id IS NULL")
        for table in tables_of(conn):
            if conn.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is None:
                row = _row(conn, table, key)
                names, marks = ", ".join(row), ", ".join("?" * len(row))
                conn.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))
        for (sound_id,) in conn.execute("SELECT id FROM hold_music").fetchall():
            (data_dir / "sounds" / f"{sound_id}.wav").write_bytes(_wav(SOUND_S))


def tables_of(conn: sqlite3.Connection) -> list[str]:
    """The tables with data, without those of SQLite, Alembic and the full-text index."""
    where = " AND ".join(f"name NOT LIKE '{pattern}'" for pattern in INTERNAL)
    return [name for (name,) in conn.execute(f"SELECT name FROM sqlite_master WHERE type = 'table' AND {where}")]


def _row(conn: sqlite3.Connection, table: str, key: secrets.Secrets) -> dict[str, Any]:
    """A value for each column of a table: an existing row for a foreign key, else one of its type."""
    parents = {each[3]: (each[2], each[4]) for each in conn.execute(f"PRAGMA foreign_key_list({table})")}
    row: dict[str, Any] = {}
    for _, column, kind, *_ in conn.execute(f"PRAGMA table_info({table})").fetchall():
        if column in parents:
            parent, parent_column = parents[column]
            (row[column],) = conn.execute(f"SELECT {parent_column} FROM {parent} LIMIT 1").fetchone()
        elif column == "organization_id":
            (row[column],) = conn.execute("SELECT id FROM organizations LIMIT 1").fetchone()
        else:
            row[column] = _value(column, kind, key)
    return row


def _value(column: str, kind: str, key: secrets.Secrets) -> Any:
    known = {"kind": "llm", "base_url": "http://127.0.0.1:9/v1"}  # of remote models, which a start reads
    if column in known:
        return known[column]
    if column.endswith("_encrypted"):
        return key.encrypt("hidden")
    if column.endswith("_at"):
        return 1_767_225_600_000
    if kind == "JSON":
        return "{}" if column in ("config", "extra", "limits", "metadata") else "[]"
    return {"VARCHAR(36)": str(uuid4()), "BLOB": b"\0" * 16}.get(kind, "lighthouse" if "CHAR" in kind else 1)


async def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), fresh=True)
        async with open_office(server) as office:
            await _store(office)
        _fill_empty_tables(server.data_dir)
        for recording in server.data_dir.glob("recordings/*/*/*.wav"):
            recording.write_bytes(_wav(SOUND_S))  # the real one is a hundred times as long
        RELEASED.mkdir(exist_ok=True)
        target = RELEASED / f"{version('trunkline')}.tar.gz"
        back_up(Settings(data_dir=server.data_dir), str(target))
    print(f"{target}: {target.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(_main())
