"""The measured side of the turn's bench: the whole server as `trunkline serve` runs it, log lines to a file; only the
models are scripted."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
import uvloop

from bench.process import obey
from bench.scripted import Delays, scripted_models
from config import logging as logs
from config.settings import Settings
from storage import agents, organizations, phone_numbers
from storage.agents import AgentFields
from storage.phone_numbers import PhoneNumberFields
from trunkline.serve import SWITCH_S, running

PORTS: Final = range(40000, 42000)
NUMBER: Final = "2000"
MAIN: Final = "event loop"


def _settings(folder: Path) -> Settings:
    return Settings().with_changes(
        {
            "data_dir": folder,
            "api": {"host": "127.0.0.1", "port": 0},
            "sip": {"host": "127.0.0.1", "port": 0, "rtp_ports": f"{PORTS[0]}-{PORTS[-1]}", "codecs": ["PCMU"]},
        }
    )


def _prepare(conn: sa.Connection, agent: dict[str, Any]) -> None:
    """A trunk that takes every call of this machine to one agent."""
    organization = organizations.create(conn, "bench")
    made = agents.create(conn, organization.id, AgentFields(name="bench", **agent))
    number = PhoneNumberFields(
        name="bench", number=NUMBER, provider="sip", sip_mode="ip_allowlist", sip_ip="127.0.0.1", agent_id=made.id
    )
    phone_numbers.create(conn, organization.id, number)


def _name_threads() -> None:
    for thread in threading.enumerate():
        name = MAIN if thread is threading.main_thread() else thread.name
        comm = Path(f"/proc/self/task/{thread.native_id}/comm")
        if comm.exists():
            comm.write_text("database" if "connection_worker" in name else name[:15])


async def name_threads() -> dict[str, Any]:
    """Give Python's threads the names by which the system tells their CPU time apart (15 characters)."""
    await asyncio.to_thread(_name_threads)
    return {}


async def main() -> None:
    """Take orders."""
    sys.setswitchinterval(SWITCH_S)
    async with AsyncExitStack() as stack:

        async def start(folder: str, answer: str, delays: dict[str, float], agent: dict[str, Any]) -> dict[str, Any]:
            log = stack.enter_context(await asyncio.to_thread(Path(folder, "server.log").open, "w"))
            logs.configure("info", "json", log)
            models = scripted_models(answer, Delays(**delays))
            server = await stack.enter_async_context(running(_settings(Path(folder)), lambda _: models))
            await server.database.write(partial(_prepare, agent=agent))
            await server.sources.refresh()
            return {"port": server.sip_port}

        await obey({"start": start, "name_threads": name_threads})


if __name__ == "__main__":
    uvloop.run(main())
