"""`trunkline call`, and what other commands do beside a running server."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.transcripts import without_times
from tests.trunkline.callees import ReceivedCall, TrunkPhone, trunk_phone
from tests.trunkline.server_process import TRUNKLINE, Server, until
from tests.trunkline.sip_phone import calling, known
from trunkline.cli import main

in_this_module = pytest.mark.asyncio(loop_scope="module")
GREETING = "Welcome to the harbour office."


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Commands may block the event loop."""


class Cli:
    """Runs commands beside a server: in threads of this process, `dial` as a process."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder

    async def __call__(self, *arguments: str, status: int = 0) -> str:
        """Returns the output of a command, or what it wrote on stderr if it failed."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            ended = await asyncio.to_thread(main.main, list(arguments))
        assert ended == status, err.getvalue()
        return out.getvalue() if status == 0 else err.getvalue()

    async def json(self, *arguments: str) -> Any:
        """The JSON object that a command prints."""
        return json.loads(await self(*arguments))

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start a command as a process."""
        return await asyncio.create_subprocess_exec(
            TRUNKLINE, *arguments, cwd=self.folder, env=self.server.environment, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip


async def line(process: asyncio.subprocess.Process) -> str:
    """The next line that a process prints."""
    assert process.stdout is not None
    async with asyncio.timeout(20):
        return (await process.stdout.readline()).decode().rstrip("\n")


async def end(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    """Exit status, and what a process has still printed."""
    async with asyncio.timeout(20):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cli(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cli]:
    """A running server; its organization Bay has the agent Reception, made by commands."""
    folder = tmp_path_factory.mktemp("server")
    patch = pytest.MonkeyPatch()
    patch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    async with Server(folder, api={"public_url": "https://voice.example.com"}) as server:
        for name, value in server.environment.items():
            if os.environ.get(name) != value:
                patch.setenv(name, value)
        cli = Cli(server, folder)
        await cli("org", "create", "Bay")
        words = ("--prompt", "Thank you.", "--greeting", GREETING, "--voice", "flite/slt", "--knowledge", "Fees")
        await cli("agent", "create", "Reception", *words)
        yield cli
        patch.undo()


@pytest_asyncio.fixture(loop_scope="module")
async def phone(cli: Cli, tmp_path: Path) -> AsyncIterator[TrunkPhone]:
    """The phone at the trunk of the number 700, which a command creates while the server runs."""
    quiet = tmp_path / "number.json"
    quiet.write_text('{"sipQualifySeconds": 0}')
    async with trunk_phone(cli.server.target) as phone:
        words = ("--port", str(phone.port), "--from", str(quiet), "--agent", "Reception")
        await cli("number", "create", "700", "--ip", "127.0.0.1", *words)
        yield phone
    await cli("number", "delete", "700", "--yes")


@in_this_module
async def test_a_call_is_placed_watched_and_hung_up(cli: Cli, phone: TrunkPhone) -> None:
    assert (await cli.json("number", "show", "700"))["sipStatus"] == "listening"
    dialling = await cli.start("call", "dial", "100", "--agent", "Reception")
    call_id = await line(dialling)
    callee = await phone.called()
    callee.ring()
    async with ReceivedCall(callee) as call:
        while (said := await line(dialling)) in ("call   │ queued", "call   │ ringing", "call   │ in_progress"):
            pass
        assert said == f"agent  │ {GREETING}"
        assert json.loads(await cli("call", "list", "--status", "in_progress", "--json"))["id"] == call_id
        headings, row = (await cli("call", "list", "--agent", "Reception")).splitlines()
        assert headings.split()[:6] == ["ID", "DIRECTION", "STATE", "NUMBER", "CUSTOMER", "AGENT"]
        assert row.split()[:6] == [call_id, "outbound", "in_progress", "700", "100", "Reception"]
        assert "has a call that has not ended" in await cli("org", "delete", "Bay", "--yes", status=1)
        hanging_up = asyncio.create_task(cli("call", "hangup", call_id))
        await call.hung_up()
        assert await hanging_up == f"hung up {call_id}: completed\n"
    status, out, err = await end(dialling)
    assert (status, err) == (0, "") and out.startswith("call   │ completed, api_hangup, 0:")
    shown = await cli.json("call", "show", call_id)
    assert without_times(shown["transcript"]) == [{"role": "assistant", "content": GREETING}]
    with_tools = await cli.json("call", "show", call_id, "--tools")
    assert (set(with_tools), with_tools["transcript"]) == (set(shown), shown["transcript"])
    assert shown["recordingUrl"].startswith("https://voice.example.com/v1/calls/")
    watched = (await cli("call", "watch", call_id, "--json")).splitlines()
    assert json.loads(watched[0]) == shown["transcript"][0]
    assert json.loads(watched[-1]) == {name: shown[name] for name in ("status", "endedReason", "durationSeconds")}
    assert "Call has already ended" in await cli("call", "hangup", call_id, status=1)
    audited = [json.loads(row) for row in (await cli("audit", "--json")).splitlines()]
    attempt = [each for each in audited if "verdict" in each][-1]
    assert (attempt["verdict"], attempt["client"], attempt["apiKey"]) == ("queued", "command line", None)
    made = [(each["action"], each["actorType"], each["callId"]) for each in audited if "action" in each][-2:]
    assert made == [("call.create", "command", call_id), ("call.hangup", "command", call_id)]


@in_this_module
async def test_the_exit_status_says_how_a_call_ended(cli: Cli, phone: TrunkPhone) -> None:
    dialling = await cli.start("call", "dial", "100", "--agent", "Reception", "--json")
    call_id = json.loads(await line(dialling))["id"]
    (await phone.called()).reject("486 Busy Here")
    status, out, _ = await end(dialling)
    assert status == 4
    assert json.loads(out.splitlines()[-1]) == {"status": "failed", "endedReason": "busy", "durationSeconds": 0}
    await cli("call", "watch", call_id, status=4)
    dialling = await cli.start("call", "dial", "100", "--agent", "Reception")
    call_id = await line(dialling)
    await phone.called()
    dialling.send_signal(signal.SIGINT)
    status, _, err = await end(dialling)
    assert status == 130 and f"the call goes on: `trunkline call hangup {call_id}` ends it" in err
    await cli("call", "hangup", call_id)
    await cli("call", "watch", call_id, status=3)


@in_this_module
async def test_calls_are_refused_by_the_rules_of_the_api(cli: Cli, phone: TrunkPhone) -> None:
    await cli("org", "set", "Bay", "--prefixes", "+49")
    refused = await cli("call", "dial", "100", "--agent", "Reception", status=1)
    assert refused == "trunkline: to: Calls from this number may not go there\n"
    await cli("org", "set", "Bay", "--any-prefix")
    assert "trunkline: to: " in await cli("call", "dial", "0049-30", "--agent", "Reception", status=1)
    await cli("agent", "edit", "Reception", "--inactive")
    assert "agentId: The agent is not active" in await cli("call", "dial", "100", "--agent", "Reception", status=1)
    await cli("agent", "edit", "Reception", "--active")
    await cli("number", "create", "701", "--ip", "127.0.0.1", "--agent", "Reception")
    several = await cli("call", "dial", "100", "--agent", "Reception", status=1)
    assert "name the number to call from with --number: there are 701, 700" in several
    await cli("number", "delete", "701", "--yes")


@in_this_module
async def test_the_list_names_the_called_number_after_its_deletion(cli: Cli) -> None:
    await cli("number", "create", "702", "--ip", "127.0.0.1", "--agent", "Reception")
    await known(cli.server.target)
    async with calling(cli.server.target, "702"):
        pass
    await cli("number", "delete", "702", "--yes")
    latest, *_ = (await cli("call", "list", "--direction", "inbound")).splitlines()[1:]
    assert re.search(r" inbound +\w+ +702 ", latest)


@in_this_module
async def test_a_document_is_read_by_the_running_server(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "fees.md").write_text("# Fees\n\nA berth costs twenty euros.\n")
    (tmp_path / "broken.pdf").write_bytes(b"no PDF")
    document_id = (await cli("document", "add", str(tmp_path / "fees.md"), "--agent", "Reception")).strip()
    shown = await cli.json("document", "show", "fees.md")
    assert (shown["id"], shown["status"], shown["chunkCount"]) == (document_id, "ready", 1)
    broken = await cli("document", "add", str(tmp_path / "broken.pdf"), "--agent", "Reception", status=1)
    assert broken.startswith(f"trunkline: {tmp_path / 'broken.pdf'} cannot be read: ")
    headings, *rows = (await cli("document", "list", "--agent", "Reception")).splitlines()
    assert headings.split() == ["ID", "NAME", "AGENT", "FILE", "SIZE", "STATE", "PASSAGES", "ERROR"]
    assert [row.split()[1:3] for row in rows] == [["broken.pdf", "Reception"], ["fees.md", "Reception"]]
    stored = cli.server.data_dir / "knowledge"
    assert document_id in "".join(path.name for path in stored.rglob("*"))
    await cli("document", "delete", "fees.md", "--yes")
    await until(lambda: document_id not in "".join(path.name for path in stored.rglob("*")))


@in_this_module
async def test_an_unknown_model_is_answered_with_a_similar_one(cli: Cli) -> None:
    refused = await cli("agent", "edit", "Reception", "--voice", "flite/sltt", status=1)
    assert refused == "trunkline: the server has no voice 'flite/sltt': see `GET /v1/voices`; did you mean flite/slt?\n"
    model = ("--model", "responder-of-another-server")
    assert "the server has no language model" in await cli("agent", "edit", "Reception", *model, status=1)
