"""llama-cpp-python's own OpenAI-compatible server as a process of its own, on a model of random weights. What it says
is set by a grammar (`saying`); how fast, by its arguments."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

KEY = "sk-of-the-llama-server"
MODEL = "tiny"
WITH_TOOLS = "tiny-tools"
VECTORS = "tiny-vectors"


@dataclass(frozen=True)
class LlamaServer:
    """Its URL and its process."""

    base_url: str
    process: asyncio.subprocess.Process

    async def kill(self) -> None:
        """Kill it; its connections are reset."""
        self.process.kill()
        await self.process.wait()


def saying(text: str) -> dict[str, Any]:
    """The request fields by which the response is this text."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return {"grammar": f'root ::= "{quoted}"', "temperature": 0}


@asynccontextmanager
async def llama_server(folder: Path, *, token_ms: int = 0) -> AsyncIterator[LlamaServer]:
    """A running server; a token takes `token_ms` or longer."""
    arguments = (sys.executable, "-m", __name__, str(folder / "tiny.gguf"), str(token_ms))
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(55):
            port = int(await process.stdout.readline())
        yield LlamaServer(f"http://127.0.0.1:{port}/v1", process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def main(path: Path, token_s: float) -> None:
    """Serve until the process ends; prints the port when ready."""
    sys.modules["diskcache"] = ModuleType("diskcache")  # not installed, and not used by the server
    import llama_cpp
    import uvicorn
    from llama_cpp.server.app import create_app
    from llama_cpp.server.settings import ModelSettings, ServerSettings

    from tests.models.llm.llama.tiny_gguf import write_tiny_gguf

    evaluate = llama_cpp.Llama.eval

    def slowly(self: Any, tokens: Any) -> None:
        time.sleep(token_s)
        evaluate(self, tokens)

    made = llama_cpp.Llama.__init__

    def pooled(self: Any, *arguments: Any, **named: Any) -> None:
        """One vector per text, as the files of embedding models specify."""
        if named.get("embedding"):
            named["pooling_type"] = llama_cpp.LLAMA_POOLING_TYPE_MEAN
        made(self, *arguments, **named)

    llama_cpp.Llama.eval, llama_cpp.Llama.__init__ = slowly, pooled
    write_tiny_gguf(path)
    kinds: dict[str, dict[str, Any]] = {
        MODEL: {}, WITH_TOOLS: {"chat_format": "chatml-function-calling"}, VECTORS: {"embedding": True}
    }  # fmt: skip
    settings = [
        ModelSettings(model=str(path), model_alias=name, n_ctx=4096, n_threads=1, verbose=False, **kind)
        for name, kind in kinds.items()
    ]
    app = create_app(server_settings=ServerSettings(api_key=KEY), model_settings=settings)
    listening = socket.create_server(("127.0.0.1", 0))

    class Telling(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(listening.getsockname()[1], flush=True)

    Telling(uvicorn.Config(app, log_level="error")).run([listening])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) / 1000)
