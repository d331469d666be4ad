"""The steps of docs/how-to/choosing-models.md for a model server on the same machine, as they are written there but for
the port: with llama-cpp-python's server in the place of Ollama and vLLM."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.models.llm.llama.talking_gguf import write_talking_gguf
from tests.peers.ports import free_port
from tests.trunkline.api_client import Client
from tests.trunkline.server_process import Server, command
from tests.trunkline.sip_phone import calling, known

PAGE = Path(__file__).parents[3] / "docs/how-to/choosing-models.md"
(SECTION,) = re.findall(r"^## A GPU in the same machine\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
BLOCKS = dict(re.findall(r"^```(\w*)\n(.*?)^```$", SECTION, re.M | re.S))
SETTINGS, COMMANDS = BLOCKS["toml"], BLOCKS[""]
VLLM = re.search(r"^vllm serve (\S+) --host (\S+) --port (\S+)", COMMANDS, re.M)
assert VLLM is not None
MODEL, HOST, PORT = VLLM.groups()
ADD, TEST = (shlex.split(line)[1:] for line in COMMANDS.splitlines() if line.startswith("trunkline "))
SAYS = "Good morning, how can I help you today?"
PROMPT = "We are open from nine to five."


@asynccontextmanager
async def model_server(folder: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """llama-cpp-python's server, by its own command, on the address of the page."""
    gguf = await asyncio.to_thread(write_talking_gguf, folder / "model.gguf", SAYS)
    (folder / "diskcache.py").touch()  # imported, but not used
    serve = ("--model", gguf, "--model_alias", MODEL, "--host", HOST, "--port", str(port), "--n_ctx", "4096")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "llama_cpp.server", *serve, "--n_threads", "1", env={"PYTHONPATH": str(folder)},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    log: list[bytes] = []
    reading = None
    try:
        async with asyncio.timeout(60):
            while b"Uvicorn running" not in (line := await process.stderr.readline()):
                log.append(line)
                assert line, b"".join(log).decode()
        reading = asyncio.create_task(process.stderr.read())
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if reading is not None:
            await reading


async def run(server: Server, *arguments: str) -> tuple[int, str]:
    """Run a command in the folder of the settings; returns its exit status and all that it prints."""
    folder = server.data_dir.parent
    status, out, err = await command(*arguments, folder=folder, environment=server.environment)
    return status, out + err


async def first_words(server: Server, client: Client) -> dict[str, Any]:
    """Call the agent, and hang up when it has spoken; returns the stored call."""
    since = server.log.mark()
    async with calling(server.target) as phone:
        answered = await server.event("call.answered", since=since)
        await server.event("turn.agent", since=since, call_id=answered["call_id"])
        await phone.hang_up()
    await server.event("call.ended", since=since, call_id=answered["call_id"])
    return await client.call(answered["call_id"])


def test_the_section_gives_both_servers_the_address_that_it_permits() -> None:
    assert f'allow = ["{HOST}/32"]' in SETTINGS
    (ollama,) = re.findall(r"^OLLAMA_HOST=(\S+) ollama serve$", COMMANDS, re.M)
    assert ollama.partition(":")[0] == HOST and f"http://{ollama}/v1" in SECTION
    assert f"http://{HOST}:{PORT}/v1" in ADD and MODEL in ADD


@pytest.mark.asyncio(loop_scope="package")
@pytest.mark.timeout(150)
async def test_calls_have_the_model_of_the_server_on_this_machine_by_the_steps_of_the_page(tmp_path: Path) -> None:
    server, port = Server(tmp_path), free_port()
    (tmp_path / "trunkline.toml").write_text(SETTINGS)
    del server.environment["TRUNKLINE_EGRESS__ALLOW"]
    origin, written = f"http://{HOST}:{port}/v1", f"http://{HOST}:{PORT}/v1"
    add = [each.replace(written, origin) for each in ADD]
    assert origin in add
    name = ADD[ADD.index("add") + 1]
    (tmp_path / "gpu").mkdir()
    async with model_server(tmp_path / "gpu", port) as gpu:
        status, printed = await run(server, *add)
        assert (status, printed.startswith(f"{name}: added"), "note" in printed) == (0, True, False), printed
        commands = (TEST, ["check"], ["models", "remote", "list"])
        tested, checked, listed = await asyncio.gather(*(run(server, *each) for each in commands))
        assert (tested[0], tested[1].endswith(f" ms: {SAYS}\n")) == (0, True), tested
        (line,) = (each.split() for each in checked[1].splitlines() if "remote llm" in each)
        assert " ".join(line) == f"ok remote llm {name} ({MODEL} at {origin})", checked
        assert listed[1].split()[-6:] == ["llm", name, origin, MODEL, "32768", "tokens"], listed
        async with server, Client(server.origin, await server.key(), server.secrets) as client:
            local, *_ = await _models(client, name)
            await client.number("100", await client.agent(systemPrompt=PROMPT, firstSpeaker="agent"))
            await known(server.target)
            call = await first_words(server, client)
            assert [(each["role"], each["content"]) for each in call["transcript"]] == [("assistant", SAYS)]

            gpu.kill()
            await gpu.wait()
            since = server.log.mark()
            call = await first_words(server, client)
            assert [each["role"] for each in call["transcript"]] == ["assistant"]
            assert call["transcript"][0]["content"] not in ("", SAYS), "the local model responds"
            fell = await server.event("model.fell_back", since=since, model=name, to=local)
            assert fell["error"].startswith(f"{name} cannot be reached: "), fell
        status, printed = await run(server, *TEST)
        assert (status, printed.startswith(f"FAIL  {name} cannot be reached: ")) == (1, True), printed


async def _models(client: Client, name: str) -> list[str]:
    """The names of the local models; the remote one is the default."""
    listed = await client.v1("GET", "slm-models")
    first, *others = [(each["name"], each["provider"], each["contextLength"], each["isDefault"]) for each in listed]
    assert first == (name, "openai", 32768, True)
    return [other for other, _, _, is_default in others if not is_default]
