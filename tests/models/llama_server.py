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
from typing import Any

KEY = "sk-of-the-llama-server"
MODEL = "tiny"


@dataclass(frozen=True)
class LlamaServer:
    """Where it is, and what runs it."""

    base_url: str
    process: asyncio.subprocess.Process

    async def kill(self) -> None:
        """As a power cut would; its connections are reset."""
        self.process.kill()
        await self.process.wait()


def saying(text: str) -> dict[str, Any]:
    """What goes into a request so that the answer is this text."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return {"grammar": f'root ::= "{quoted}"', "temperature": 0}


@asynccontextmanager
async def llama_server(folder: Path, *, token_ms: int = 0) -> AsyncIterator[LlamaServer]:
    """A server that takes requests; a token takes it `token_ms` or longer."""
    arguments = (sys.executable, "-m", __name__, str(folder / "tiny.gguf"), str(token_ms))
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(40):
            port = int(await process.stdout.readline())
        yield LlamaServer(f"http://127.0.0.1:{port}/v1", process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def main(path: Path, token_s: float) -> None:
    """Serve until the end of the process; prints the port once requests are taken."""
    import llama_cpp
    import uvicorn
    from llama_cpp.server.app import create_app
    from llama_cpp.server.settings import ModelSettings, ServerSettings

    from tests.models.tiny_gguf import write_tiny_gguf

    evaluate = llama_cpp.Llama.eval

    def slowly(self: Any, tokens: Any) -> None:
        time.sleep(token_s)
        evaluate(self, tokens)

    llama_cpp.Llama.eval = slowly
    write_tiny_gguf(path)
    settings = ModelSettings(
        model=str(path), model_alias=MODEL, n_ctx=4096, n_threads=1, n_threads_batch=1, verbose=False
    )
    app = create_app(server_settings=ServerSettings(api_key=KEY), model_settings=[settings])
    listening = socket.create_server(("127.0.0.1", 0))

    class Telling(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(listening.getsockname()[1], flush=True)

    Telling(uvicorn.Config(app, log_level="error")).run([listening])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) / 1000)
