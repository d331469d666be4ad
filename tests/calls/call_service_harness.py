"""A `CallService` for tests: database, audio engine, recordings and service are real; models and legs are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from cryptography.fernet import Fernet

from calls.admission.admission_reads import AdmissionReads
from calls.admission.balance_check import inbound_balance_check
from calls.admission.concurrency_limits import ConcurrencyLimits
from calls.admission.digest_auth import InboundDigestAuth
from calls.admission.load_shedding import ModelLoadShedder
from calls.call_record.billing import RateCard
from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.client import HttpEgressClient
from calls.http_egress.concurrency import HttpEgressConcurrency
from calls.outbound.dialer import OutboundDialer
from calls.outbound.pacing import CallPacer
from calls.post_call.analysis import CallAnalyzer
from calls.post_call.finalizer import CallFinalizer
from calls.service import CallService
from calls.session.dependencies import CallDependencies
from calls.session.hold_music import HoldMusic
from calls.tools.http_tool import ToolHttpAccess
from calls.webhooks.delivery import WebhookSender
from calls.webhooks.event_request import DeliveryPolicy
from calls.webhooks.live_turns import LiveTurnSender
from config.secrets import Secrets
from config.settings_tables import BillingSettings
from media.audio_port import TICK_MS
from media.engine.engine import AudioEngine
from media.recording import RecordingWriter
from models.protocols import LlmOutput
from sipcore.audio.pump import Pump
from sipcore.security.digest import DigestVerifier
from storage.accounts import organizations
from storage.agents import agents
from storage.agents.agents import Agent
from storage.calls import call_list, calls
from storage.calls.call_journal import CallJournal
from storage.calls.call_list import CallFilter
from storage.calls.calls import Call
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber, PhoneNumberFields
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy
from storage.tables.agent_fields import AgentFields
from tests import database_template
from tests.calls.http_server import system_tls
from tests.fakes.fake_leg import SOURCE, ArrayPump, Callees, Phone
from tests.fakes.scripted_call import ScriptedLlm, ScriptedStt, ScriptedTts, scripted_catalogue

FREE = BillingSettings()
TICK_PAUSE_S = 0.001
"""Real time between two ticks of 20 ms: audio runs up to twenty times as fast as real time."""
T = TypeVar("T")
GREETS: dict[str, Any] = {"first_speaker": "agent", "agent_greeting": "Welcome caller.", "agent_greeting_enabled": True}


class WatchedDatabase(Database):
    """A database whose writes a test can wait for."""

    def __init__(self, url: str, node: str | None = None) -> None:
        super().__init__(url, node)
        self._written = asyncio.Condition()
        self._writes = 0

    async def write(
        self,
        work: Callable[[sa.Connection], T],
        *,
        owner: str | None = None,
        lock: str | None = None,
        deferrable: bool = False,
    ) -> T:
        result = await super().write(work, owner=owner, lock=lock, deferrable=deferrable)
        await self.on_written()
        return result

    async def on_written(self) -> None:
        """Look again: a write was committed."""
        async with self._written:
            self._writes += 1
            self._written.notify_all()

    async def until(self, look: Callable[[sa.Connection], T], holds: Callable[[T], bool]) -> T:
        """Wait until `holds` is true for the result of `look`, for 30 s at most; returns that."""
        async with asyncio.timeout(30):
            while True:
                seen = self._writes
                if holds(found := await self.read(look)):
                    return found
                async with self._written:
                    await self._written.wait_for(lambda: self._writes > seen)  # noqa: B023


class GatedCallPacer(CallPacer):
    """A pacer that starts no call while the gate is closed."""

    def __init__(self, per_second: float) -> None:
        super().__init__(per_second)
        self.gate = asyncio.Event()
        self.gate.set()

    async def wait(self) -> None:
        await self.gate.wait()
        await super().wait()


@dataclass
class CallServiceHarness:
    """The service, and the parts that tests use."""

    data_dir: Path
    database: WatchedDatabase
    journal: CallJournal
    pump: ArrayPump
    engine: AudioEngine
    service: CallService
    llm: ScriptedLlm
    stt: ScriptedStt
    tts: ScriptedTts
    secrets: Secrets
    callees: Callees
    pacer: GatedCallPacer
    woken: list[None] = field(default_factory=list)
    aliases: dict[str, Collection[str]] = field(default_factory=dict)
    """The names of source addresses in the database, beside themselves."""

    async def create_number(
        self, number: str = "+4930100", *, max_calls: int | None = None, assigned: bool = True, **agent: Any
    ) -> tuple[PhoneNumber, Agent]:
        """Create a number on the trunk at `SOURCE`, in an organization of its own, with an agent."""

        def create(conn: sa.Connection) -> tuple[PhoneNumber, Agent]:
            organization = organizations.create(conn, f"of {number}", max_calls=max_calls)
            made = agents.create(
                conn, organization.id, replace(AgentFields(name="a", speculative_silence_ms=None), **agent)
            )
            fields = PhoneNumberFields(
                number=number,
                provider="sip",
                sip_mode="ip_allowlist",
                sip_ip=SOURCE,
                agent_id=made.id if assigned else None,
            )
            return phone_numbers.create(conn, organization.id, fields), made

        return await self.database.write(create)

    def invite(self, **facts: Any) -> Phone:
        """Send an INVITE to the service."""
        phone = Phone(self.pump, **facts)
        self.service.on_incoming_call(phone.leg)
        return phone

    async def ended_call(self, phone: Phone) -> Call:
        """Wait until the end of the leg's call is stored; returns the call."""
        await until(lambda: phone.leg.ended.done())
        await until(
            lambda: not any(live.call.call_sid == phone.leg.sip_call_id for live in self.service.active_calls())
        )
        return await self.stored_call(phone)

    async def stored_call(self, phone: Phone) -> Call:
        """Returns the leg's call as it is stored."""
        found = [call for call in await self.all_calls() if call.call_sid == phone.leg.sip_call_id]
        assert len(found) == 1
        return found[0]

    async def all_calls(self) -> list[Call]:
        """Returns every stored call."""
        return await self.database.read(every_call)


def every_call(conn: sa.Connection) -> list[Call]:
    """Returns every call of every organization."""
    found = []
    for organization in organizations.all_of(conn):
        page = call_list.page(conn, organization.id, limit=100, offset=0, call_filter=CallFilter())
        found += [calls.get_by_id(conn, row.id) for row in page.items]
    return [call for call in found if call is not None]


async def until(condition: Any) -> None:
    """Poll a condition that has no event, for 30 s at most."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - across threads and tasks, with nothing to wait on
            await asyncio.sleep(0.002)


@asynccontextmanager
async def call_service(
    data_dir: Path,
    *answers: str | Sequence[LlmOutput] | Exception,
    language_model: ScriptedLlm | None = None,
    limits: ConcurrencyLimits | None = None,
    rtp_timeout_s: float = 30.0,
    ring_timeout_s: float = 45.0,
    per_second: float = 1000.0,
    hears: Sequence[str] = (),
    load_shedder: ModelLoadShedder | None = None,
    max_analysis_s: float = 30.0,
    billing: BillingSettings = FREE,
    trunk_policy: TrunkPolicy = "open",
    database: WatchedDatabase | None = None,
    pump: ArrayPump | None = None,
    recordings: RecordingWriter | None = None,
    hold_music: HoldMusic | None = None,
    refer_timeout_s: float = 30.0,
    tick_ms: int = TICK_MS,
    tick_pause_s: float = TICK_PAUSE_S,
    webhooks: DeliveryPolicy | None = None,
    secrets: Secrets | None = None,
    journaled: bool = False,
    admission_reads: AdmissionReads | None = None,
    node_share: Callable[[int], int] = lambda limit: limit,
) -> AsyncIterator[CallServiceHarness]:
    """A `CallService` that admits and places calls; all parts are closed afterwards. `language_model` replaces the
    scripted `answers`. `per_second` is the rate of outbound calls; `load_shedder` is sampled by the test alone.
    `database` is opened here; `recordings` is started here. A tick has `tick_ms` of audio and follows the last one
    after `tick_pause_s`. With `webhooks` events are sent; `journaled`: what cannot be stored is in the call journal."""
    database = database or WatchedDatabase(await database_template.copy_to(data_dir))
    await database.open()
    pump = pump or ArrayPump()
    post = asyncio.get_running_loop().call_soon_threadsafe
    engine = await asyncio.to_thread(AudioEngine, pump, post, lambda: pump.now_ms * 1_000_000)
    recordings = recordings or RecordingWriter()
    recordings.start()
    llm, stt, tts = language_model or ScriptedLlm(*answers), ScriptedStt(*hears), ScriptedTts()
    secrets = secrets or Secrets([Fernet.generate_key()])
    woken: list[None] = []
    aliases: dict[str, Collection[str]] = {}

    def aliases_of(address: str) -> Collection[str]:
        return aliases.get(address, {address})

    catalogue = scripted_catalogue(llm, stt, tts)
    client = HttpEgressClient(HttpEgressRules(["127.0.0.0/8"]), system_tls())
    sender = WebhookSender(database, client, secrets, webhooks or DeliveryPolicy())
    live_turns = LiveTurnSender(None if webhooks is None else client, secrets, webhooks or DeliveryPolicy())

    def webhook_queued() -> None:
        woken.append(None)
        sender.wake()

    journal = CallJournal(data_dir, secrets)
    finalizer = CallFinalizer(
        database,
        secrets,
        "https://here.test",
        webhook_queued,
        RateCard.from_settings(billing),
        CallAnalyzer(catalogue, max_analysis_s),
        journal if journaled else None,
    )
    if journaled:
        await journal.open()
    deps = CallDependencies(
        database=database,
        engine=engine,
        recordings=recordings,
        models=catalogue,
        finalizer=finalizer,
        data_dir=data_dir,
        tool_http=ToolHttpAccess(client, HttpEgressConcurrency(), secrets),
        rtp_timeout_s=rtp_timeout_s,
        ring_timeout_s=ring_timeout_s,
        aliases_of=aliases_of,
        hold_music=hold_music,
        webhook_queued=webhook_queued,
        live_turns=live_turns,
        admission_reads=admission_reads,
    )
    callees = Callees(pump)
    pacer = GatedCallPacer(per_second)
    dialer = OutboundDialer(
        dial=callees.dial,
        trunk_of=callees.trunk_of,
        pacer=pacer,
        load_shedder=load_shedder,
        trunk_policy=trunk_policy,
    )
    service = CallService(
        deps,
        limits or ConcurrencyLimits(),
        dialer=dialer,
        digest_auth=InboundDigestAuth(secrets, DigestVerifier(("SHA-256", "MD5"))),
        load_shedder=load_shedder,
        check_admission=inbound_balance_check(billing),
        trunk_policy=trunk_policy,
        pump=cast(Pump, pump),
        refer_timeout_s=refer_timeout_s,
        node_share=node_share,
    )
    ticking = asyncio.ensure_future(_tick(pump, engine, tick_ms, tick_pause_s))
    sending = None if webhooks is None else asyncio.ensure_future(sender.run())
    try:
        yield CallServiceHarness(
            data_dir=data_dir,
            database=database,
            journal=journal,
            pump=pump,
            engine=engine,
            service=service,
            llm=llm,
            stt=stt,
            tts=tts,
            secrets=secrets,
            callees=callees,
            pacer=pacer,
            woken=woken,
            aliases=aliases,
        )
    finally:
        await service.drain(0)
        if journaled:
            await journal.close()
        await live_turns.close()
        if sending is not None:
            sending.cancel()
            await asyncio.wait((sending,))
        await client.close()
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        await asyncio.to_thread(engine.close)
        await asyncio.to_thread(recordings.close)
        await database.close()


async def _tick(pump: ArrayPump, engine: AudioEngine, tick_ms: int, pause_s: float) -> None:
    while True:
        pump.step(tick_ms)
        engine.tick()
        await asyncio.sleep(pause_s)
