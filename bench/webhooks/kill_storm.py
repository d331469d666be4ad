"""Is an event lost or altered? Calls end, the server that sends their webhooks is killed (`kill -9`) at random moments,
and the receivers fail, hang, drop connections, redirect and answer late. Afterwards the receivers' own log must show
that every event was delivered, with the same bytes and valid signatures, in five attempts, none before its time."""

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

from bench.webhooks.faulty_receiver import StormReceiver
from bench.webhooks.invariants import Kill, Recorded, Storm, by_delivery, cut, faults
from bench.webhooks.sender_processes import RTP_PORTS, Prepared, Refuser, Sender, SmallSender, WholeServer
from config import secrets
from config.settings import Settings
from storage import tables
from storage.accounts import api_keys, organizations
from storage.agents import agents
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from storage.tables.agent_fields import AgentFields

SECRET: Final = "storm and shelter"
RECEIVERS: Final = 4
TIMEOUT_S: Final = 1.5
DELAYS_S: Final = (0.3, 0.6, 0.9, 1.2)
CALLS_AT_ONCE: Final = 8
DURING_START: Final = 0.15
"""The share of kills that come while the sender starts."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How much of everything. A life lasts `life_s` at most once it has begun. `failing`: how many attempts of an event
    fail, one of these by chance."""

    events: int = 1000
    kills: int = 60
    life_s: float = 3.0
    start_s: float = 2.5
    whole_server: bool = True
    seed: int = 7
    timeout_s: float = TIMEOUT_S
    delays_s: tuple[float, ...] = DELAYS_S
    failing: tuple[int, ...] = (0, 0, 1, 1, 2, 3, 4)


@dataclass
class Course:
    """What has happened so far."""

    made: int = 0
    kills: list[Kill] = field(default_factory=list)
    kills_at_start: int = 0


def _settings(folder: Path, plan: Plan, port: int) -> dict[str, str]:
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
        "TRUNKLINE_WEBHOOKS__RETRY_DELAYS_S": json.dumps(plan.delays_s),
        "TRUNKLINE_LIMITS__REQUESTS_PER_MINUTE": "1000000",
        "TRUNKLINE_LIMITS__MAX_OUTBOUND_PER_SECOND": "1000",
        "TRUNKLINE_LIMITS__SLOW_ANSWERS": "off",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _prepare(secret: str, urls: list[str], phone: int, conn: sa.Connection) -> Prepared:
    organization = organizations.create(conn, "storm")
    _, key = api_keys.create(conn, organization.id, requests_per_minute=1_000_000)
    made = [AgentFields(name=url, post_call_webhook_url=url, post_call_webhook_secret_encrypted=secret) for url in urls]
    number = PhoneNumberFields(
        number="2000", provider="sip", sip_mode="ip_allowlist", sip_ip="127.0.0.1", sip_port=phone,
        sip_qualify_seconds=0,
    )  # fmt: skip
    return Prepared(
        key, organization.id, [agents.create(conn, organization.id, each).id for each in made],
        phone_numbers.create(conn, organization.id, number).id,
    )  # fmt: skip


async def _with_database(url: str, *work: Callable[[Database], Awaitable[Any]]) -> list[Any]:
    database = Database(url)
    await database.open()
    try:
        return [await each(database) for each in work]
    finally:
        await database.close()


def _recorded(conn: sa.Connection) -> tuple[list[Recorded], frozenset[str]]:
    """Every attempt that was made, and the calls that ended."""
    a, c = tables.webhook_attempts.c, tables.calls.c
    columns = (a.delivery_id, a.attempt, a.status, sa.type_coerce(a.created_at, sa.BigInteger), a.duration_ms)
    rows = conn.execute(sa.select(*columns).where(a.status != "pending"))
    ended = conn.execute(sa.select(c.id).where(c.ended_at.is_not(None))).scalars()
    return [Recorded(*row) for row in rows], frozenset(ended)


def _left(conn: sa.Connection) -> int:
    """Events that may still be sent."""
    waits = tables.webhook_deliveries.c.status == "pending"
    return conn.execute(sa.select(sa.func.count()).where(waits)).scalar_one()


async def _make_calls(sender: Sender, course: Course, up_to: int) -> None:
    """Let calls end until so many have; ends early when the sender dies."""

    async def one_by_one(first: int) -> None:
        for number in range(first, up_to, CALLS_AT_ONCE):
            if not await sender.end_call(number):
                return
            done[number] = True

    done = dict.fromkeys(range(course.made, up_to), False)
    await asyncio.gather(*(one_by_one(course.made + each) for each in range(CALLS_AT_ONCE)))
    while done.get(course.made):
        course.made += 1


async def _live(sender: Sender, plan: Plan, course: Course, luck: random.Random) -> None:
    """One life that ends by a kill."""
    await sender.spawn()
    making = None
    if luck.random() < DURING_START:
        with suppress(TimeoutError):
            await asyncio.wait_for(sender.ready(), luck.random() * plan.start_s)
            course.kills_at_start -= 1
        course.kills_at_start += 1
    else:
        await sender.ready()
        up_to = min(plan.events, round(plan.events * (len(course.kills) + 1) / (0.9 * plan.kills)))
        making = asyncio.create_task(_make_calls(sender, course, up_to))
        await asyncio.sleep(luck.random() * plan.life_s)
    course.kills.append(await sender.kill())
    if making is not None:
        await making


async def storm(plan: Plan, folder: Path) -> tuple[Storm, Course, float]:
    """What came of it, and how long it took, s. Raises `TimeoutError` when the last life does not deliver all."""
    luck, course = random.Random(plan.seed), Course()
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        receiver = await StormReceiver(SECRET, plan.seed, plan.timeout_s, plan.failing).listen(RECEIVERS)
        stack.push_async_callback(receiver.close)
        loop = asyncio.get_running_loop()
        phone, _ = await loop.create_datagram_endpoint(Refuser, local_addr=("127.0.0.1", 0))
        stack.callback(phone.close)
        port = _free_port()
        environment = _settings(folder, plan, port)
        settings = Settings.load(None, environment)
        token = (await asyncio.to_thread(secrets.load_or_create, settings.secret_key_path)).encrypt(SECRET)
        phone_port = phone.get_extra_info("sockname")[1]
        put = partial(_prepare, token, receiver.urls, phone_port)
        (prepared,) = await _with_database(settings.database_url, lambda database: database.write(put))
        sender: Sender = (
            WholeServer(environment, prepared, port) if plan.whole_server else SmallSender(environment, prepared)
        )
        while len(course.kills) < plan.kills:
            await _live(sender, plan, course, luck)
        await sender.spawn()
        await sender.ready()
        await _make_calls(sender, course, plan.events)
        await _with_database(settings.database_url, partial(_until_sent, seconds=120))
        await sender.stop()
        ((recorded, ended),) = await _with_database(settings.database_url, lambda database: database.read(_recorded))
    found = Storm(plan.events, ended, receiver.log, course.kills, recorded, plan.delays_s, receiver.redirected)
    return found, course, time.monotonic() - began


async def _until_sent(database: Database, seconds: float) -> None:
    """Wait until nothing may be sent any more."""
    async with asyncio.timeout(seconds):
        while await database.read(_left):  # noqa: ASYNC110 - another process works on it
            await asyncio.sleep(0.1)


def rows_of(found: Storm, course: Course, took_s: float) -> list[Row]:
    """The table."""
    kinds = Counter(each.kind for each in found.log)
    numbers = Counter(max(each.attempt for each in one) for one in by_delivery(found.log).values())
    missed = faults(found)
    return [
        _row("events, each of a call that ended", len(found.expected)),
        _row("kill -9 of the server", f"{len(course.kills)}, {course.kills_at_start} of them while it started"),
        _row("requests that came", len(found.log)),
        *(_row(f"of these: the receiver {kind}", count) for kind, count in sorted(kinds.items())),
        _row("attempts recorded", len(found.recorded)),
        _row("attempts that a kill cut and that came again under the same number", cut(found)),
        _row("events that took 1 / 2 / 3 / 4 / 5 attempts", " / ".join(str(numbers[each]) for each in range(1, 6))),
        _row("events delivered", len({each.call_id for each in found.log if each.succeeded} & found.expected)),
        _row("events altered, unsigned, early, beyond five attempts, or twice without a kill", len(missed)),
        _row("seconds", round(took_s)),
    ]


def _row(what: str, figure: object) -> Row:
    return {"what": what, "figure": figure}


async def run(quick: bool = False) -> list[Row]:
    """The bench."""
    plan = Plan(events=60, kills=4) if quick else Plan()
    with tempfile.TemporaryDirectory() as folder:
        found, course, took_s = await storm(plan, Path(folder))
    rows = rows_of(found, course, took_s)
    return rows + [_row("fault", fault) for fault in faults(found)]


def misses(rows: list[Row]) -> list[str]:
    """Everything that did not hold."""
    return [row["figure"] for row in rows if row["what"] == "fault"]
