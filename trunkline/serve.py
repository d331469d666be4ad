"""The server: every part started in order, stopped in reverse."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import structlog
from prometheus_client import REGISTRY

from api.app import create_app
from api.listen import listen
from api.services import Services
from calls import metrics
from calls.admission import RETRY_AFTER_S, Ceilings
from calls.after_call import AfterCall
from calls.audit import forget_regularly
from calls.background import Backgrounds
from calls.door import Door
from calls.egress import EgressClient, Lanes
from calls.equipment import Equipment
from calls.host_names import HostNames
from calls.http_tool import Outside
from calls.knowledge import KnowledgeWorker
from calls.load import Load
from calls.outbound import Turns, WayOut
from calls.places import Places
from calls.service import CallService
from calls.sip_trails import SipTrails
from calls.sources import TrunkSources
from calls.trunks import TrunkLines, TrunkMaker
from calls.webhooks import Deliverer, DeliveryPolicy
from config import secrets
from config.secrets import Secrets
from config.settings import Settings
from media.engine import Engine
from media.recording import RecordingWriter
from models import loading
from models.catalogue import Catalogue
from models.speech_files import SpeechFiles
from sipcore.digest import InboundDigest
from sipcore.endpoint import Endpoint
from sipcore.headers import bracketed
from sipcore.leg import Leg
from storage import key_proof, lock, preset_sounds
from storage.database import Database
from trunkline.certificate import CertificateWatch
from trunkline.control import Control
from trunkline.descriptors import allow_enough
from trunkline.egress import egress_rules, egress_tls
from trunkline.endpoint_settings import endpoint_settings
from trunkline.metrics import GuardCollector, SoundCollector
from trunkline.model_load import load_of
from trunkline.remote_models import configured, with_remote, without_remote
from trunkline.signals import StopSignals
from trunkline.sip_answers import SipAnswers, Told
from trunkline.sip_figures import SipCollector
from trunkline.trunk_hosts import locator_of

HOUSEKEEPING_S: Final = 2.0
"""Between two looks at what the guard turned away and at how full the server is."""

NAMES_S: Final = 5.0
"""How long a start waits for the addresses of trunks: calls from names that take longer are taken later."""

LAST_WEBHOOKS_S: Final = 5.0
"""How long a stop waits for the webhooks of the last calls; what is left is sent at the next start."""
HURRIED_S: Final = 1.0
"""The same after a second SIGINT."""

SWITCH_S: Final = 0.001
"""How long a thread keeps the interpreter when others want it (Python's default is 5 ms): the tick thread asks for it
many times a tick."""

Work = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger()


@dataclass
class Server:
    """A running server. `sip_port` and `api_origin` are where it really listens."""

    settings: Settings
    database: Database
    endpoint: Endpoint
    engine: Engine
    calls: CallService
    deliverer: Deliverer
    sources: TrunkSources
    certificate: CertificateWatch
    sip_port: int
    load: Load | None = None
    api_origin: str = ""
    draining: bool = False
    parts: dict[str, str | None] = field(default_factory=lambda: {"sip": None, "models": None, "audio": None})
    """None when ready, else why not. SIP and models are up once there is a server; `watch_audio` follows the sound."""
    _ticks_seen: int = -1

    def readiness(self) -> Mapping[str, str | None]:
        """Parts of the server: None when ready, else why not."""
        return {**self.parts, "calls": "draining" if self.draining else None}

    def watch_audio(self) -> None:
        """Look whether the tick thread still moves."""
        ticks = self.engine.stats.ticks
        self.parts["audio"] = "the audio engine stands still" if ticks == self._ticks_seen else None
        self._ticks_seen = ticks

    def say_whether_calls_are_taken(self) -> None:
        """To whoever phones or asks with OPTIONS, from now on."""
        self.endpoint.set_accepting(self.why_refused() is None, RETRY_AFTER_S)

    def why_refused(self) -> str | None:
        """Why no further call is taken; None when calls are."""
        if self.draining or self.calls.is_full:
            return "draining" if self.draining else "full"
        return None if self.load is None else self.load.why_closed

    async def until_stopped(self, stop: StopSignals) -> None:
        """Serve until a signal asks to drain; then wait for live calls as the settings say, or until the second one.
        Registrations stay until the last call has ended: what belongs to it may come by their way."""
        await stop.drain.wait()
        self.draining = True
        timeout_s = self.settings.sip.drain_timeout_s
        log.info("draining", live_calls=self.calls.live_calls, timeout_s=timeout_s)
        self.say_whether_calls_are_taken()
        drained = asyncio.ensure_future(self.calls.drain(timeout_s))
        at_once = asyncio.ensure_future(stop.now.wait())
        await asyncio.wait((drained, at_once), return_when=asyncio.FIRST_COMPLETED)
        at_once.cancel()
        if not drained.done():
            self.calls.end_all("server_shutdown")
        await drained
        self.endpoint.unregister()
        await self._send_last_webhooks(HURRIED_S if stop.now.is_set() else LAST_WEBHOOKS_S)

    async def _send_last_webhooks(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.deliverer.idle()
        except TimeoutError:
            log.warning("webhooks.left_for_next_start")


def spare_what_stays() -> None:
    """From now on Python's garbage collection passes over all that has been made so far, models and code: it is here to
    stay, and to look through it takes tenths of a second, in which nothing else runs."""
    gc.collect()
    gc.freeze()


async def serve(settings: Settings) -> None:
    """Serve until a signal. Raises `StartupError` when it cannot start."""
    stop = StopSignals()
    stop.listen()
    sys.setswitchinterval(SWITCH_S)
    async with running(settings) as server:
        spare_what_stays()
        stop.on_hangup = server.certificate.look
        await server.until_stopped(stop)


@asynccontextmanager
async def running(
    settings: Settings, load_models: Callable[[Settings], Catalogue] | None = None
) -> AsyncIterator[Server]:
    """A server that accepts traffic, until the block ends. `load_models` replaces the models in tests and benches."""
    allow_enough(settings.limits.max_calls, settings.api.max_connections)
    async with AsyncExitStack() as stack:
        stack.enter_context(lock.hold(settings.data_dir))
        stack.callback(log.info, "stopped")
        key = secrets.load_or_create(settings.secret_key_path)
        database = await _open_database(settings, key, stack)
        presets = asyncio.create_task(preset_sounds.put_in_place(database, settings.data_dir), name="preset sounds")
        stack.push_async_callback(asyncio.wait, (presets,))
        remotes = await configured(database, key)
        files = await asyncio.to_thread(_speech_files, settings)
        loads = load_models or partial(_load_models, speech_files=files)
        here = await asyncio.to_thread(loads, without_remote(settings, remotes))
        stack.push_async_callback(asyncio.to_thread, here.close)
        models = await with_remote(here, remotes, settings, stack, files)
        load = load_of(settings, models)
        deliverer, outside = await _open_ways_out(settings, database, key, stack)
        inbox = _Inbox()
        endpoint = Endpoint(endpoint_settings(settings), inbox.incoming)
        await endpoint.start()
        stack.push_async_callback(endpoint.close)
        engine, writer = _open_sound(endpoint, stack)
        trails = SipTrails(database, endpoint.sip_log, endpoint.see_messages)
        stack.push_async_callback(trails.close)
        after_call = AfterCall(database, key, settings.public_origin, deliverer.wake)
        places = _open_places(settings, endpoint, stack)
        probes = [str(each) for each in settings.sip.probes]
        sources = TrunkSources(database, lambda known: endpoint.set_sources(known, probes), places)
        equipment = Equipment(
            database, engine, writer, models, after_call, settings.data_dir, outside, settings.sip.rtp_timeout_s,
            Backgrounds(endpoint.pump, settings.data_dir), settings.sip.ring_timeout_s, trails, sources.names_of,
        )  # fmt: skip
        turns = Turns(settings.limits.max_outbound_per_second)
        lines = TrunkLines(database, TrunkMaker(key, places), endpoint.set_trunks, endpoint.trunk_status)
        way_out = WayOut(endpoint.call, lines.ready, turns, settings.sip.tcp, load)
        door = Door(key, InboundDigest(settings.sip.digest_algorithms))
        service = inbox.service = CallService(
            database, equipment, _ceilings(settings), sources.names_of, way_out, door=door, load=load
        )
        stack.push_async_callback(service.drain, 0)
        await service.recover()
        watch = CertificateWatch(endpoint)
        server = Server(
            settings, database, endpoint, engine, service, deliverer, sources, watch, endpoint.sip_port, load
        )
        service.on_room = server.say_whether_calls_are_taken
        knowledge = KnowledgeWorker(database, settings.data_dir)
        await knowledge.recover()
        services = Services(
            settings, database, key, models, server.readiness, lambda: service.live_calls,
            trunk_status=lines.status, phone_numbers_changed=partial(_all, sources.changed, lines.changed),
            documents_waiting=knowledge.wake, webhooks_waiting=deliverer.wake,
            check_room=service.check_room, call_queued=service.look_for_queued, hangup=service.hangup,
            sip_messages=trails.messages, why_refused=server.why_refused,
        )  # fmt: skip
        await presets
        port = await stack.enter_async_context(listen(create_app(services), settings.api))
        server.api_origin = _origin(settings, port)
        sip = Told(
            database, endpoint.sip_log, endpoint.see_messages, trails, service, sources.names_of, services.trunk_status
        )
        await stack.enter_async_context(Control(settings.data_dir, SipAnswers(sip).answers()).listening())
        figures = SipCollector(endpoint.sip_log, lines.all)
        figures.register()
        stack.callback(figures.unregister)
        await sources.refresh()
        await places.settled(NAMES_S)
        await lines.refresh()
        work: dict[str, Work] = {
            "webhooks": deliverer.run,
            "sources": sources.run,
            "trunks": lines.run,
            "knowledge": knowledge.run,
            "audit": partial(forget_regularly, database),
            "housekeeping": partial(_housekeeping, server),
            "certificate": server.certificate.run,
        }
        if load is not None:
            load.on_change = server.say_whether_calls_are_taken
            work["models"] = load.run
        _start_tasks(server, stack, work)
        log.info("ready", api=server.api_origin, **_sip_facts(server))
        yield server


def _all(*functions: Callable[[], None]) -> None:
    for function in functions:
        function()


class _Inbox:
    """Where the endpoint brings legs; the service exists only after the endpoint, before any source is known."""

    service: CallService

    def incoming(self, leg: Leg) -> None:
        self.service.incoming(leg)


async def _open_database(settings: Settings, key: Secrets, stack: AsyncExitStack) -> Database:
    database = Database(settings.database_url)
    stack.enter_context(lock.hold_database(database.path))
    stack.push_async_callback(database.close)
    await database.open()
    await database.write(lambda conn: key_proof.check(conn, key))
    return database


def _speech_files(settings: Settings) -> SpeechFiles | None:
    most = settings.models.speech_cache_mb * 1024 * 1024
    return SpeechFiles(settings.data_dir / "speech", most) if most else None


def _load_models(settings: Settings, speech_files: SpeechFiles | None) -> Catalogue:
    chosen = settings.models
    return loading.load(
        settings.models_dir, chosen.stt, chosen.llm, chosen.tts, chosen.eot, chosen.stt_second,
        on_speech=lambda origin: metrics.SPOKEN_PIECES.labels(origin=origin).inc(), speech_files=speech_files,
        calls=settings.limits.max_calls,
    )  # fmt: skip


async def _open_ways_out(
    settings: Settings, database: Database, key: Secrets, stack: AsyncExitStack
) -> tuple[Deliverer, Outside]:
    """For webhooks and for tools, with a client each: neither waits for the other's slow name servers."""
    tls, rules = await egress_tls(settings), egress_rules(settings)
    clients = EgressClient(rules, tls), EgressClient(rules, tls)
    for client in clients:
        stack.push_async_callback(client.close)
    webhooks = settings.webhooks
    policy = DeliveryPolicy(webhooks.allow_http, webhooks.timeout_s, webhooks.retry_delays_s)
    return Deliverer(database, clients[0], key, policy), Outside(clients[1], Lanes(), key)


def _open_places(settings: Settings, endpoint: Endpoint, stack: AsyncExitStack) -> Places:
    """Where trunks' host names are, found without PJSIP and told to it."""
    hosts = HostNames()
    stack.callback(hosts.close)
    places = Places(locator_of(settings, hosts).locate, endpoint.set_hosts)
    endpoint.on_silent = places.demote
    stack.push_async_callback(places.close)
    return places


def _open_sound(endpoint: Endpoint, stack: AsyncExitStack) -> tuple[Engine, RecordingWriter]:
    writer = RecordingWriter()
    writer.start()
    stack.push_async_callback(asyncio.to_thread, writer.close)
    engine = Engine(endpoint.pump, asyncio.get_running_loop().call_soon_threadsafe)
    engine.start()
    stack.push_async_callback(asyncio.to_thread, engine.close)
    for collector in (SoundCollector(endpoint.pump, engine), GuardCollector()):
        REGISTRY.register(collector)
        stack.callback(REGISTRY.unregister, collector)
    return engine, writer


def _start_tasks(server: Server, stack: AsyncExitStack, work: Mapping[str, Work]) -> None:
    """Background tasks that end with the server. A fault in one is logged, and the server is not ready from then on."""
    tasks = [asyncio.create_task(_watched(server, name, each), name=name) for name, each in work.items()]

    async def end() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    stack.push_async_callback(end)


async def _watched(server: Server, name: str, work: Work) -> None:
    try:
        await work()
    except Exception as error:
        log.error("server.task_failed", task=name, error=repr(error), exc_info=error)
        server.parts[name] = "failed, see the log"


async def _housekeeping(server: Server) -> None:
    while True:
        await asyncio.sleep(HOUSEKEEPING_S)
        server.endpoint.log_guard_events()
        server.watch_audio()
        server.calls.look_for_queued()  # a client may have gone between the storing of its call and our knowing of it


def _ceilings(settings: Settings) -> Ceilings:
    return Ceilings(settings.limits.max_calls, settings.limits.max_calls_per_organization)


def _origin(settings: Settings, port: int) -> str:
    host = "127.0.0.1" if settings.api.host in ("0.0.0.0", "::") else settings.api.host
    return f"{'https' if settings.api.tls_cert else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _sip_facts(server: Server) -> dict[str, object]:
    sip, stats = server.settings.sip, server.endpoint.pump.stats()
    listening = {"sip": f"{bracketed(sip.host)}:{server.sip_port}", "tcp": sip.tcp, "tls": sip.tls_port or False}
    return {**listening, "realtime_audio": stats.realtime, "max_calls": server.settings.limits.max_calls}
