"""A server on a read-only file system, except for its data and temporary folders, and without capabilities: as
the image runs with `--read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges`."""

from __future__ import annotations

import io
import os
import shutil
import wave
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

import pytest

from tests.trunkline.api_client import Client
from tests.trunkline.server_process import TRUNKLINE, Server

WRAPPER: Final = """#!/bin/sh
exec unshare -m sh -c '
set -e
mount --make-rprivate /
others=$(for path in / "{folder}" "{code}" /root /home; do findmnt -n -o TARGET -T "$path"; done | sort -u)
for own in "{data}" "{tmp}"; do mount --bind "$own" "$own"; done
for mount in $others; do mount -o remount,bind,ro "$mount"; done
for own in "{folder}" "{code}"; do if touch "$own/outside" 2>/dev/null; then rm "$own/outside"; exit 9; fi; done
export TMPDIR="{tmp}"
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all {trunkline} "$@"' sh "$@"
"""
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="only root can mount read-only"),
    pytest.mark.timeout(120),
]


def document_upload(agent_id: str) -> dict[str, Any]:
    """The body of a document upload."""
    content = b"We open at nine."
    file = {"fileSize": len(content), "fileBase64": b64encode(content).decode()}
    return {"agentId": agent_id, "name": "Hours", "filename": "hours.txt", "mimeType": "text/plain", **file}


def sound() -> dict[str, Any]:
    """The body of a sound upload."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\0\1" * 4000)
    encoded = {"fileSize": len(content.getvalue()), "fileBase64": b64encode(content.getvalue()).decode()}
    return {"name": "Hum", "filename": "hum.wav", "mimeType": "audio/wav", **encoded}


def process_status(pid: int, name: str) -> str:
    """A field of a process's status (proc(5))."""
    return Path(f"/proc/{pid}/status").read_text().partition(f"{name}:\t")[2].split()[0]


async def test_a_server_runs_ingests_uploads_and_stops_without_writing_elsewhere(tmp_path: Path) -> None:
    wrapper = tmp_path / "wrapped"
    server = Server(tmp_path, command=str(wrapper))
    (tmp_path / "tmp").mkdir()
    paths = {"folder": tmp_path, "code": Path(__file__).parents[3], "data": server.data_dir, "tmp": tmp_path / "tmp"}
    wrapper.write_text(WRAPPER.format(**paths, trunkline=TRUNKLINE))
    wrapper.chmod(0o755)
    key = await server.key()
    async with server, Client(server.origin, key, server.secrets) as client:
        assert int(process_status(server.process.pid, "CapEff"), 16) == 0
        assert process_status(server.process.pid, "Umask") == "0077"
        agent = await client.agent(knowledgeSearchInstructions="Always")
        document = await client.v1("POST", "knowledge", document_upload(agent))
        await client.v1("POST", "background-sounds", sound())
        await server.event("knowledge.ready", document_id=document["id"], timeout_s=60)
