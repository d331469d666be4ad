"""llama-cpp-python's OpenAI-compatible server as a process: `python -m bench.models.openai_server FILE [CERTIFICATE
KEY]` prints its port when it is ready. It computes one request at a time, first come, first served, and keeps the
prompt of the last one in its KV cache."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any, Final

MODEL: Final = "bench"
CONTEXT: Final = 4096


@asynccontextmanager
async def openai_server(path: str, certificate: tuple[str, str] | None = None) -> AsyncIterator[str]:
    """A running server of a GGUF file; yields its base URL. `certificate`: files of a certificate and its key for
    https."""
    arguments = (sys.executable, "-m", __name__, path, *(certificate or ()))
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        await process.wait()


def main(path: str, certificate: str | None = None, key: str | None = None) -> None:
    """Serves until the process is killed."""
    sys.modules["diskcache"] = ModuleType("diskcache")  # not installed, and not used by the server
    import uvicorn
    from llama_cpp.server.app import create_app
    from llama_cpp.server.settings import ModelSettings, ServerSettings

    threads = len(os.sched_getaffinity(0))
    model: dict[str, Any] = {"n_threads": threads, "n_threads_batch": threads, "verbose": False}
    app = create_app(
        server_settings=ServerSettings(interrupt_requests=False),
        model_settings=[ModelSettings(model=path, model_alias=MODEL, n_ctx=CONTEXT, **model)],
    )
    listening = socket.create_server(("127.0.0.1", 0))

    class Telling(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(listening.getsockname()[1], flush=True)

    config = uvicorn.Config(app, log_level="error", ssl_certfile=certificate, ssl_keyfile=key)
    Telling(config).run([listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
