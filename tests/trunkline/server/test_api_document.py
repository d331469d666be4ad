"""The commands of docs/reference/api.md, run in a shell."""

from __future__ import annotations

import asyncio
import os
import re
import wave
from pathlib import Path

import pytest

from tests.api.knowledge_client import FILES
from tests.trunkline.server_process import Server

pytestmark = pytest.mark.asyncio(loop_scope="package")
GUIDE = Path(__file__).parents[3] / "docs/reference/api.md"
COMMANDS = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def _quay(path: Path) -> None:
    """Write a WAV file with a second of sound."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(b"\x00\x10\x00\xf0" * 8000)


async def test_the_commands_of_the_api_reference_succeed(tmp_path: Path) -> None:
    _quay(tmp_path / "quay.wav")
    (tmp_path / "manual.pdf").write_bytes(FILES["application/pdf"])
    async with Server(tmp_path) as server:
        script = "\n".join(COMMANDS).replace("http://localhost:8080/v1", f"{server.origin}/v1")
        assert f"{server.origin}/v1" in script
        shell = await asyncio.create_subprocess_exec(
            "bash", "-euo", "pipefail", "-c", script,
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "TRUNKLINE_KEY": await server.key()},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(50):
            out, err = (part.decode() for part in await shell.communicate())
    assert (shell.returncode, err) == (0, ""), out
    lines = out.splitlines()
    assert re.fullmatch(r'"[0-9a-f-]{36}"', lines[0])
    assert lines[0] == lines[1], "the same key makes one agent"
    assert "null" not in lines, "every field that the guide asks for is there"
    assert '"endedReason": "api_hangup"' in out
    assert "twenty euros a night" in out
    assert out.count('"deleted":true') == 5
