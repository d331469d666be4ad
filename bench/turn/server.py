"""The measured side of the benches of turns and of capacity, and of the soak: the whole server as `trunkline serve`
runs it, log lines to a file; only the models are scripted."""

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

from bench.turn.scripted_models import Delays, scripted_models
from bench.worker_process import obey
from config import logging as logs
from config.log_writer import LogWriter
from config.settings import Settings
from models.loading.catalogue import Catalogue
from storage import tables
from storage.accounts import organizations
from storage.agents import agents
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from storage.tables.agent_fields import AgentFields
from trunkline.server.server import Server
from trunkline.server.startup import SWITCH_INTERVAL_S, freeze_gc, running_server

PORTS: Final = range(40000, 42000)
NUMBER: Final = "2000"
MAIN: Final = "event loop"


def _settings(folder: Path, changes: dict[str, Any]) -> Settings:
    sip = {"host": "127.0.0.1", "port": 0, "rtp_ports": f"{PORTS[0]}-{PORTS[-1]}", "codecs": ["PCMU"]}
    return Settings().with_changes(
        {
            "data_dir": folder,
            "api": {"host": "127.0.0.1", "port": 0},
            **changes,
            "sip": {**sip, **changes.get("sip", {})},
        }
    )


def _prepare(conn: sa.Connection, agent: dict[str, Any]) -> None:
    """A trunk that takes every call of this machine to one agent."""
    organization = organizations.create(conn, "bench")
    made = agents.create(conn, organization.id, AgentFields(name="bench", **agent))
    number = PhoneNumberFields(
        name="bench",
        number=NUMBER,
        provider="sip",
        sip_mode="ip_allowlist",
        sip_ip="127.0.0.1",
        agent_id=made.id,
        sip_qualify_seconds=0,
    )
    phone_numbers.create(conn, organization.id, number)


def _models(answer: str, delays: Delays, weights: str | None, folder: Path) -> Catalogue:
    if weights is None:
        return scripted_models(answer, delays)
    from bench.turn.realistic_models import realistic_models  # nothing of it counts as memory of the other benches

    return realistic_models(weights, folder)


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


def _ended(conn: sa.Connection) -> dict[str, Any]:
    """The calls that are over: how many, how they ended, and what their RTP was like. The database adds up: to bring
    every call here would cost the process that is measured memory that grows with their number."""
    calls = tables.calls.c
    over = calls.ended_at.is_not(None)
    reasons = conn.execute(sa.select(calls.ended_reason, sa.func.count()).where(over).group_by(calls.ended_reason))
    counted: dict[str, int] = dict(reasons.tuples().all())
    received, lost = (
        conn.execute(sa.select(sa.func.sum(sa.func.json_extract(calls.media_quality, path))).where(over)).scalar()
        for path in ("$.received.packets", "$.received.lost")
    )
    return {"ended": sum(counted.values()), "reasons": counted, "received": received or 0, "lost": lost or 0}


async def _facts(server: Server) -> dict[str, Any]:
    """What is in use now, and what has ended."""
    pump = server.endpoint.pump.stats(reset=True)
    return {
        "calls": server.calls.active_call_count,
        "legs": server.endpoint.live_legs,
        "slots": pump.calls,
        "lateness_ms": pump.lateness_ms,
        "deviation_ms": pump.deviation_ms,
        "skipped_ticks": pump.skipped_ticks,
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        **await server.database.read(_ended),
    }


async def main() -> None:
    """Take orders."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    async with AsyncExitStack() as stack:
        servers: list[Server] = []

        async def start(
            folder: str,
            answer: str,
            delays: dict[str, float],
            agent: dict[str, Any],
            settings: dict[str, Any] | None = None,
            weights: str | None = None,
        ) -> dict[str, Any]:
            log = stack.enter_context(await asyncio.to_thread(Path(folder, "server.log").open, "w"))
            logs.configure("info", "json", stack.enter_context(LogWriter(log)))
            models = await asyncio.to_thread(_models, answer, Delays(**delays), weights, Path(folder))
            server = await stack.enter_async_context(
                running_server(_settings(Path(folder), settings or {}), lambda _: models)
            )
            await server.database.write(partial(_prepare, agent=agent))
            await server.sources.refresh()
            servers.append(server)
            freeze_gc()
            return {"port": server.sip_port}

        async def facts() -> dict[str, Any]:
            return await _facts(servers[0])

        await obey({"start": start, "name_threads": name_threads, "facts": facts})


if __name__ == "__main__":
    uvloop.run(main())
