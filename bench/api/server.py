"""The measured server of the API benchmarks (a worker process): the whole server as `trunkline serve` runs it, with its
log in a file and scripted models that answer at once, so that two cores can run a hundred conversations."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.api.sample_data import insert_copies, insert_sample_data, insert_second_tenant
from bench.turn.scripted_models import scripted_models
from bench.worker_process import serve_commands
from config import logging as logs
from config.settings import Settings
from trunkline.server.startup import SWITCH_INTERVAL_S, running_server

PORTS: Final = range(40000, 42000)
ANSWER: Final = "All right, I have noted that."


def _settings(folder: Path, changes: dict[str, Any]) -> Settings:
    return Settings().with_changes(
        {
            **changes,
            "data_dir": folder,
            "api": {"host": "127.0.0.1", "port": 0},
            "sip": {
                "host": "127.0.0.1",
                "port": 0,
                "rtp_ports": f"{PORTS[0]}-{PORTS[-1]}",
                "codecs": ["PCMU"],
                "max_invites_per_second": 10_000,
            },
            "trunks": {"policy": "open"},
        }
    )


async def main() -> None:
    """Serves commands from stdin."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    async with AsyncExitStack() as stack:
        handlers: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {}

        async def start(folder: str, *, calls: int = 0, is_first: bool = True, **changes: Any) -> dict[str, Any]:
            """`calls`: how many copies of the sample call are stored. `is_first`: False for a further node of a
            database, which stores no sample data. `changes`: more settings."""
            log = stack.enter_context(await asyncio.to_thread(Path(folder, "server.log").open, "w"))
            logs.configure("info", "json", log)
            server = await stack.enter_async_context(
                running_server(_settings(Path(folder), changes), lambda _: scripted_models(ANSWER))
            )
            database = server.database
            sample_data = await database.write(insert_sample_data) if is_first else {}
            if calls:
                await database.write(partial(insert_copies, call_id=sample_data["call_id"], count=calls))

            async def add_tenant() -> dict[str, Any]:
                return {"key": await database.write(insert_second_tenant)}

            handlers["add_tenant"] = add_tenant
            return {"origin": server.api_origin, "sip_port": server.sip_port, **sample_data}

        handlers["start"] = start
        await serve_commands(handlers)


if __name__ == "__main__":
    uvloop.run(main())
