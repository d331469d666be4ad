"""Fault injection for webhook delivery: calls end, the server that sends their webhooks is killed (`kill -9`) at random
moments, and the receivers fail, hang, drop connections, redirect and answer late. Afterwards the receivers' requests
must show that every event was delivered, with unchanged bytes and valid signatures, in at most five attempts, none of
them early."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from bench.webhooks.faulty_receiver import FaultyReceiver
from bench.webhooks.invariants import (
    DeliveryHistory,
    Kill,
    RecordedAttempt,
    repeated_requests,
    requests_by_delivery,
    violations,
)
from bench.webhooks.sender_processes import RTP_PORTS, BusyPhone, FullServer, MinimalSender, SeedData, Sender
from config import secrets
from config.settings import Settings
from storage import tables
from storage.accounts import api_keys, organizations
from storage.agents import agents
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from storage.tables.agent_fields import AgentFields

SECRET: Final = "webhook secret"
RECEIVERS: Final = 4
TIMEOUT_S: Final = 1.5
RETRY_DELAYS_S: Final = (0.3, 0.6, 0.9, 1.2)
CONCURRENT_CALLS: Final = 8
KILLS_DURING_START: Final = 0.15
"""Share of the kills that happen while the sender starts."""
Row = dict[str, Any]


@dataclass(frozen=True)
class FaultPlan:
    """The faults that are injected. The sender is killed within `max_uptime_s` once it is ready, or within
    `max_start_s` while it starts. The number of attempts of an event that fail is drawn from `failed_attempts`."""

    events: int = 1000
    kills: int = 60
    max_uptime_s: float = 3.0
    max_start_s: float = 2.5
    full_server: bool = True
    seed: int = 7
    timeout_s: float = TIMEOUT_S
    retry_delays_s: tuple[float, ...] = RETRY_DELAYS_S
    failed_attempts: tuple[int, ...] = (0, 0, 1, 1, 2, 3, 4)


@dataclass
class Progress:
    """The calls and kills so far."""

    calls: int = 0
    kills: list[Kill] = field(default_factory=list)
    kills_during_start: int = 0


def _settings(folder: Path, plan: FaultPlan, port: int) -> dict[str, str]:
    return {
        "TRUNKLINE_DATA_DIR": str(folder),
        "TRUNKLINE_LOG_FORMAT": "json",
        "TRUNKLINE_API__HOST": "127.0.0.1",
        "TRUNKLINE_API__PORT": str(port),
        "TRUNKLINE_SIP__HOST": "127.0.0.1",
        "TRUNKLINE_SIP__PORT": "0",
        "TRUNKLINE_SIP__RTP_PORTS": RTP_PORTS,
        "TRUNKLINE_EGRESS__ALLOW": '["127.0.0.0/8"]',
        "TRUNKLINE_WEBHOOKS__ALLOW_HTTP": "true",
        "TRUNKLINE_WEBHOOKS__TIMEOUT_S": str(plan.timeout_s),
        "TRUNKLINE_WEBHOOKS__RETRY_DELAYS_S": json.dumps(plan.retry_delays_s),
        "TRUNKLINE_LIMITS__REQUESTS_PER_MINUTE": "1000000",
        "TRUNKLINE_LIMITS__MAX_OUTBOUND_PER_SECOND": "1000",
        "TRUNKLINE_LIMITS__SLOW_ANSWERS": "off",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _insert_seed_data(secret: str, urls: list[str], phone: int, conn: sa.Connection) -> SeedData:
    organization = organizations.create(conn, "bench")
    _, key = api_keys.create(conn, organization.id, requests_per_minute=1_000_000)
    fields = [
        AgentFields(name=url, post_call_webhook_url=url, post_call_webhook_secret_encrypted=secret) for url in urls
    ]
    number = PhoneNumberFields(
        number="2000", provider="sip", sip_mode="ip_allowlist", sip_ip="127.0.0.1", sip_port=phone,
        sip_qualify_seconds=0,
    )  # fmt: skip
    return SeedData(
        key, organization.id, [agents.create(conn, organization.id, each).id for each in fields],
        phone_numbers.create(conn, organization.id, number).id,
    )  # fmt: skip


async def _with_database(url: str, *work: Callable[[Database], Awaitable[Any]]) -> list[Any]:
    database = Database(url)
    await database.open()
    try:
        return [await each(database) for each in work]
    finally:
        await database.close()


def _attempts_and_calls(conn: sa.Connection) -> tuple[list[RecordedAttempt], frozenset[str]]:
    """Every attempt that is not pending, and the ids of the ended calls."""
    a, c = tables.webhook_attempts.c, tables.calls.c
    columns = (a.delivery_id, a.attempt, a.status, sa.type_coerce(a.created_at, sa.BigInteger), a.duration_ms)
    rows = conn.execute(sa.select(*columns).where(a.status != "pending"))
    ended = conn.execute(sa.select(c.id).where(c.ended_at.is_not(None))).scalars()
    return [RecordedAttempt(*row) for row in rows], frozenset(ended)


def _pending_count(conn: sa.Connection) -> int:
    """Number of events that may still be sent."""
    is_pending = tables.webhook_deliveries.c.status == "pending"
    return conn.execute(sa.select(sa.func.count()).where(is_pending)).scalar_one()


async def _end_calls(sender: Sender, progress: Progress, up_to: int) -> None:
    """Makes calls that end until there are `up_to`; returns early if the sender is killed."""

    async def end_every_nth(first: int) -> None:
        for number in range(first, up_to, CONCURRENT_CALLS):
            if not await sender.end_call(number):
                return
            done[number] = True

    done = dict.fromkeys(range(progress.calls, up_to), False)
    await asyncio.gather(*(end_every_nth(progress.calls + each) for each in range(CONCURRENT_CALLS)))
    while done.get(progress.calls):
        progress.calls += 1


async def _run_until_killed(sender: Sender, plan: FaultPlan, progress: Progress, rng: random.Random) -> None:
    """Starts the sender and kills it at a random moment."""
    await sender.spawn()
    calling = None
    if rng.random() < KILLS_DURING_START:
        with suppress(TimeoutError):
            await asyncio.wait_for(sender.wait_ready(), rng.random() * plan.max_start_s)
            progress.kills_during_start -= 1
        progress.kills_during_start += 1
    else:
        await sender.wait_ready()
        up_to = min(plan.events, round(plan.events * (len(progress.kills) + 1) / (0.9 * plan.kills)))
        calling = asyncio.create_task(_end_calls(sender, progress, up_to))
        await asyncio.sleep(rng.random() * plan.max_uptime_s)
    progress.kills.append(await sender.kill())
    if calling is not None:
        await calling


async def inject_faults(plan: FaultPlan, folder: Path) -> tuple[DeliveryHistory, Progress, float]:
    """Runs the plan. Returns the history of all deliveries, the progress, and the elapsed time, s. Raises
    `TimeoutError` if the sender does not deliver everything after the last kill."""
    rng, progress = random.Random(plan.seed), Progress()
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        receiver = FaultyReceiver(SECRET, plan.seed, plan.timeout_s, plan.failed_attempts)
        await receiver.listen(RECEIVERS)
        stack.push_async_callback(receiver.close)
        loop = asyncio.get_running_loop()
        phone, _ = await loop.create_datagram_endpoint(BusyPhone, local_addr=("127.0.0.1", 0))
        stack.callback(phone.close)
        port = _free_port()
        environment = _settings(folder, plan, port)
        settings = Settings.load(None, environment)
        token = (await asyncio.to_thread(secrets.load_or_create, settings.secret_key_path)).encrypt(SECRET)
        phone_port = phone.get_extra_info("sockname")[1]
        insert = partial(_insert_seed_data, token, receiver.urls, phone_port)
        (seed_data,) = await _with_database(settings.database_url, lambda database: database.write(insert))
        sender: Sender = (
            FullServer(environment, seed_data, port) if plan.full_server else MinimalSender(environment, seed_data)
        )
        while len(progress.kills) < plan.kills:
            await _run_until_killed(sender, plan, progress, rng)
        await sender.spawn()
        await sender.wait_ready()
        await _end_calls(sender, progress, plan.events)
        await _with_database(settings.database_url, partial(_wait_until_sent, seconds=120))
        await sender.stop()
        ((attempts, ended_calls),) = await _with_database(
            settings.database_url, lambda database: database.read(_attempts_and_calls)
        )
    history = DeliveryHistory(
        plan.events, ended_calls, receiver.requests, progress.kills, attempts, plan.retry_delays_s, plan.timeout_s,
        receiver.redirected,
    )  # fmt: skip
    return history, progress, time.monotonic() - began


async def _wait_until_sent(database: Database, seconds: float) -> None:
    """Waits until no event is pending."""
    async with asyncio.timeout(seconds):
        while await database.read(_pending_count):  # noqa: ASYNC110 - another process sends them
            await asyncio.sleep(0.1)


def rows_of(history: DeliveryHistory, progress: Progress, elapsed_s: float) -> list[Row]:
    """The rows of the table."""
    behaviours = Counter(each.behaviour for each in history.requests)
    deliveries = requests_by_delivery(history.requests).values()
    attempt_counts = Counter(max(request.attempt for request in requests) for requests in deliveries)
    delivered = {each.call_id for each in history.requests if each.succeeded} & history.ended_calls
    return [
        _row("events, each of an ended call", len(history.ended_calls)),
        _row("kill -9 of the server", f"{len(progress.kills)}, {progress.kills_during_start} of them while it started"),
        _row("requests received", len(history.requests)),
        *(_row(f"of these: the receiver {each}", count) for each, count in sorted(behaviours.items())),
        _row("attempts recorded", len(history.attempts)),
        _row("requests repeated after a kill, with the same attempt number", repeated_requests(history)),
        _row("events with 1 / 2 / 3 / 4 / 5 attempts", " / ".join(str(attempt_counts[each]) for each in range(1, 6))),
        _row("events delivered", len(delivered)),
        _row(
            "violations: altered, unsigned, early, after five attempts, or twice without a kill",
            len(violations(history)),
        ),
        _row("seconds", round(elapsed_s)),
    ]


def _row(what: str, figure: object) -> Row:
    return {"what": what, "figure": figure}


async def run(quick: bool = False) -> list[Row]:
    """The rows of the table, with a row for each violated invariant."""
    plan = FaultPlan(events=20, kills=2, max_uptime_s=1.0, max_start_s=1.0) if quick else FaultPlan()
    with tempfile.TemporaryDirectory() as folder:
        history, progress, elapsed_s = await inject_faults(plan, Path(folder))
    return rows_of(history, progress, elapsed_s) + [_row("violation", each) for each in violations(history)]


def missed_goals(rows: list[Row]) -> list[str]:
    """The violated invariants."""
    return [row["figure"] for row in rows if row["what"] == "violation"]
