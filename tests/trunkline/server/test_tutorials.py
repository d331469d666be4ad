"""The tutorials of docs/start: their commands, run in one shell one after the other, and the call at their end."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from pathlib import Path

import pytest

from tests.peers.ports import free_port
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.server_process import TRUNKLINE, Server, until
from tests.trunkline.sip_phone import known
from tests.trunkline.tenants import is_answered

pytestmark = pytest.mark.asyncio(loop_scope="package")
START = Path(__file__).parents[3] / "docs/start"
PAGES = ("first-call", "first-pbx", "first-tool", "first-webhook")
TEXTS = {page: (START / f"{page}.md").read_text() for page in PAGES}
BLOCKS = {page: re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) for page, text in TEXTS.items()}
CALLED = "echo called >&3; read -r go_on"
"""Replaces the call that the reader of the last page makes: the shell waits for the test's call."""


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _save_receiver(folder: Path, port: int) -> None:
    """As the reader of the last page does, who chooses Python; the other languages have tests of their own."""
    (program,) = re.findall(r"^```python\n(.*?)^```", TEXTS["first-webhook"], re.M | re.S)
    (folder / "receiver.py").write_text(program.replace("9001", str(port)))


def _script(server: Server, tool: int, receiver: int) -> str:
    *earlier, events, last = (block for page in PAGES for block in BLOCKS[page])
    assert events.startswith("cat events.txt")
    script = "\n".join(["trap 'kill $(jobs -p)' EXIT", *earlier, CALLED, events, last])
    for written, here in {
        ".venv/bin/trunkline": str(TRUNKLINE),
        "http://localhost:8080": server.origin,
        "PHONE=192.0.2.20": "PHONE=127.0.0.1",
        "PBX=192.0.2.10": "PBX=127.0.0.1",
        "9000": str(tool),
        "9001": str(receiver),
    }.items():
        assert written in script, f"the tutorials do not say {written}"
        script = script.replace(written, here)
    return script


@pytest.mark.timeout(150)
async def test_the_tutorials_lead_to_a_call_and_to_its_webhook(tmp_path: Path) -> None:
    async with Server(tmp_path, egress={"allow": ["127.0.0.1"]}, webhooks={"allow_http": True}) as server:
        ports = free_port(), free_port()
        await asyncio.to_thread(_save_receiver, tmp_path, ports[1])
        called, calls = os.pipe()
        shell = await asyncio.create_subprocess_exec(
            "bash", "-euo", "pipefail", "-c", f"exec 3>&{calls}\n{_script(server, *ports)}",
            cwd=tmp_path, env={**server.environment, "PATH": os.environ["PATH"]}, pass_fds=(calls,),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        os.close(calls)
        assert shell.stdin is not None
        async with asyncio.timeout(100):
            reached = await asyncio.to_thread(os.read, called, 100)
            os.close(called)
            if reached:
                await until(lambda: all(map(_listens, ports)))
                await known(server.target, "127.0.0.1")
                async with RawPhone(server.target) as phone:
                    await is_answered(phone, "100")
                await until(lambda: (tmp_path / "events.txt").read_text(), 20)
            out, err = (part.decode() for part in await shell.communicate(b"\n"))
    assert shell.returncode == 0, f"{out}\n{err}"
    assert all("POST / HTTP" in line for line in err.splitlines()), "only the receiver writes there"
    assert '"status": "queued"' in out, "the outbound call"
    assert re.fullmatch(r"call\.completed completed \d+\n", (tmp_path / "events.txt").read_text())
    assert "call.completed completed" in out
    assert '"number": "100"' in out and '"sipStatus": "listening"' in out
    assert '"status": "succeeded"' in out, "the delivery of the webhook"
