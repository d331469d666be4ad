"""The measured server of the turn, capacity and transfer benchmarks and of the soak test (a worker process): the whole
server as `trunkline serve` runs it, with its log in a file and scripted or random-weight models."""

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
from bench.worker_process import serve_commands
from config import logging as logs
from config.log_writer import LogWriter
from config.settings import Settings
from models.loading.catalogue import Catalogue
from storage import tables
from storage.accounts import organizations
from storage.agents import agents
from storage.calls.transfers import TransferMode, TransferOrder
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from storage.tables.agent_fields import AgentFields
from trunkline.server.server import Server
from trunkline.server.startup import SWITCH_INTERVAL_S, freeze_gc, running_server

PORTS: Final = range(40000, 42000)
NUMBER: Final = "2000"
EVENT_LOOP_THREAD: Final = "event loop"


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


def _insert_trunk_and_agent(conn: sa.Connection, agent: dict[str, Any], trunk: dict[str, Any]) -> None:
    """Creates a trunk that connects every call from this machine to one agent. `trunk`: further fields of its
    number."""
    organization = organizations.create(conn, "bench")
    created = agents.create(conn, organization.id, AgentFields(name="bench", **agent))
    number = PhoneNumberFields(
        name="bench",
        number=NUMBER,
        provider="sip",
        sip_mode="ip_allowlist",
        sip_ip="127.0.0.1",
        agent_id=created.id,
        sip_qualify_seconds=0,
        **trunk,
    )
    phone_numbers.create(conn, organization.id, number)


def _models(answer: str, delays: Delays, llm_path: str | None, folder: Path) -> Catalogue:
    if llm_path is None:
        return scripted_models(answer, delays)
    from bench.turn.realistic_models import realistic_models  # imported here to take no memory in other benchmarks

    return realistic_models(llm_path, folder)


def _name_threads() -> None:
    for thread in threading.enumerate():
        name = EVENT_LOOP_THREAD if thread is threading.main_thread() else thread.name
        comm = Path(f"/proc/self/task/{thread.native_id}/comm")
        if comm.exists():
            comm.write_text("database" if "connection_worker" in name else name[:15])


async def name_threads() -> dict[str, Any]:
    """Sets the kernel's names of Python's threads (15 characters), by which their CPU time is reported."""
    await asyncio.to_thread(_name_threads)
    return {}


def _ended(conn: sa.Connection) -> dict[str, Any]:
    """The number of ended calls, their end reasons, and their received and lost RTP packets. The database computes the
    sums, because loading every call would take memory in the measured process."""
    calls = tables.calls.c
    has_ended = calls.ended_at.is_not(None)
    reasons = conn.execute(sa.select(calls.ended_reason, sa.func.count()).where(has_ended).group_by(calls.ended_reason))
    counted: dict[str, int] = dict(reasons.tuples().all())
    received, lost = (
        conn.execute(sa.select(sa.func.sum(sa.func.json_extract(calls.media_quality, path))).where(has_ended)).scalar()
        for path in ("$.received.packets", "$.received.lost")
    )
    return {"ended": sum(counted.values()), "reasons": counted, "received": received or 0, "lost": lost or 0}


async def _status(server: Server) -> dict[str, Any]:
    """The resources that are in use now, and the calls that have ended. Resets the pump's statistics."""
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


async def _transfer_calls(server: Server, mode: TransferMode, interval_s: float) -> dict[str, Any]:
    """Starts a transfer of each call: to the agent's target with the name that the Call-ID begins with, before "-"."""
    calls = [call.snapshot() for call in server.calls.active_calls()]
    for snapshot in calls:
        assert snapshot.leg is not None
        target = snapshot.leg.sip_call_id.partition("-")[0]
        order = TransferOrder(target=target, mode=mode, reason="A question about a bill", requested_by="api")
        await server.calls.transfer(snapshot.call.id, order)
        await asyncio.sleep(interval_s)
    return {"transfers": len(calls)}


async def main() -> None:
    """Serves commands from stdin."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    async with AsyncExitStack() as stack:
        servers: list[Server] = []

        async def start(
            folder: str,
            answer: str,
            delays: dict[str, float],
            agent: dict[str, Any],
            settings: dict[str, Any] | None = None,
            llm_path: str | None = None,
            trunk: dict[str, Any] | None = None,
        ) -> dict[str, Any]:
            log = stack.enter_context(await asyncio.to_thread(Path(folder, "server.log").open, "w"))
            logs.configure("info", "json", stack.enter_context(LogWriter(log)))
            models = await asyncio.to_thread(_models, answer, Delays(**delays), llm_path, Path(folder))
            server = await stack.enter_async_context(
                running_server(_settings(Path(folder), settings or {}), lambda _: models)
            )
            await server.database.write(partial(_insert_trunk_and_agent, agent=agent, trunk=trunk or {}))
            await server.sources.refresh()
            servers.append(server)
            freeze_gc()
            return {"port": server.sip_port}

        async def status() -> dict[str, Any]:
            return await _status(servers[0])

        async def transfer(mode: TransferMode, interval_s: float) -> dict[str, Any]:
            return await _transfer_calls(servers[0], mode, interval_s)

        await serve_commands({"start": start, "name_threads": name_threads, "status": status, "transfer": transfer})


if __name__ == "__main__":
    uvloop.run(main())
