"""The server: every part started in order, stopped in reverse."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

import structlog

from api.app import create_app
from api.services import Services
from api.serving.listener import listen
from calls.admission.capacity import ConcurrencyLimits
from calls.admission.digest_auth import InboundDigestAuth
from calls.admission.funds import inbound_funds_check
from calls.admission.model_load import ModelLoadShedder
from calls.call_record.billing import RateCard
from calls.call_record.sip_trace import CallSipTraces
from calls.knowledge.indexer import KnowledgeIndexer
from calls.knowledge.ingestion import DocumentIngester
from calls.knowledge.search import KnowledgeSearch
from calls.knowledge.vector_search import VectorSearch
from calls.outbound.audit_log import prune_periodically
from calls.outbound.dialer import OutboundDialer, SendInvite
from calls.outbound.pacing import CallPacer
from calls.post_call.analysis import CallAnalyzer
from calls.post_call.finalizer import CallFinalizer
from calls.post_call.retention import Retention
from calls.quota_monitor import QuotaMonitor
from calls.service import CallService
from calls.session.background_audio import BackgroundSounds
from calls.session.dependencies import CallDependencies
from calls.trunks.provisioning import TrunkBuilder, TrunkProvisioner
from calls.trunks.source_allowlist import SourceAllowlist
from calls.trunks.trunk_policy import TrunkPolicy
from config.secrets import Secrets
from config.settings import Settings
from models.loading.catalogue import Catalogue
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from sipcore.messages.headers import bracketed
from sipcore.security.digest import DigestVerifier
from storage.background_sounds import presets as preset_sounds
from storage.database import lock
from storage.database.disk_space import DiskSpace
from trunkline.backup import atomic_moves
from trunkline.server.certificate_reload import CertificateReloader
from trunkline.server.control_socket import CommandHandler, ControlConnection, ControlServer
from trunkline.server.file_limits import allow_enough
from trunkline.server.server import Server
from trunkline.server.signals import StopSignals
from trunkline.server.sip_commands import SipCommands, SipControlContext
from trunkline.wiring.components import (
    log_open_trunk_decisions,
    open_audio,
    open_database,
    open_egress,
    open_host_tracker,
    open_models,
)
from trunkline.wiring.model_load import load_of
from trunkline.wiring.remote_models import configured
from trunkline.wiring.sip import endpoint_settings
from trunkline.wiring.sip_metrics import SipCollector

HOUSEKEEPING_S: Final = 2.0
"""Between two looks at what the guard turned away and at how full the server is."""

NAMES_S: Final = 5.0
"""How long a start waits for the addresses of trunks: calls from names that take longer are taken later."""

SWITCH_S: Final = 0.001
"""How long a thread keeps the interpreter when others want it (Python's default is 5 ms): the tick thread asks for it
many times a tick."""

NO_PUBLIC_URL: Final = (
    "set [api] public_url to the address that clients use: until then links in responses name the Host that each "
    "client sends, and links in webhooks this one"
)

Work = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger()


def freeze_gc() -> None:
    """Exclude all objects made so far, models and code, from garbage collection: they stay for the life of the process,
    and a collection of them takes tenths of a second, in which nothing else runs."""
    gc.collect()
    gc.freeze()


async def serve(settings: Settings) -> None:
    """Serve until a signal. Raises `StartupError` when it cannot start."""
    stop = StopSignals()
    stop.listen()
    sys.setswitchinterval(SWITCH_S)
    async with running(settings) as server:
        freeze_gc()
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
        atomic_moves.finish(settings.data_dir)
        database, key = await open_database(settings, stack)
        presets = asyncio.create_task(preset_sounds.install_presets(database, settings.data_dir), name="preset sounds")
        stack.push_async_callback(asyncio.wait, (presets,))
        models = await open_models(settings, load_models, await configured(database, key), stack)
        load = load_of(settings, models)
        webhook_sender, tool_http = await open_egress(settings, database, key, stack)
        inbox = _Inbox()
        endpoint = Endpoint(endpoint_settings(settings), inbox.incoming)
        await endpoint.start()
        stack.push_async_callback(endpoint.close)
        engine, writer = open_audio(endpoint, stack)
        sip_traces = CallSipTraces(database, endpoint.sip_log, endpoint.take_messages)
        stack.push_async_callback(sip_traces.close)
        finalizer = CallFinalizer(
            database, key, settings.public_origin, webhook_sender.wake, RateCard.from_settings(settings.billing),
            CallAnalyzer(models, settings.after_call.max_wait_s),
        )  # fmt: skip
        trunk_policy = TrunkPolicy(settings.trunks.policy)
        hosts = open_host_tracker(settings, endpoint, trunk_policy, stack)
        sources = SourceAllowlist(
            database, partial(endpoint.set_sources, probes=[*map(str, settings.sip.probes)]), hosts, trunk_policy.mode
        )
        vectors = None if models.embeddings is None else VectorSearch(database, models.embeddings)
        knowledge_search, indexer = KnowledgeSearch(database, vectors), KnowledgeIndexer(database, vectors)
        deps = CallDependencies(
            database=database, engine=engine, recordings=writer, models=models, finalizer=finalizer,
            data_dir=settings.data_dir, tool_http=tool_http, rtp_timeout_s=settings.sip.rtp_timeout_s,
            ring_timeout_s=settings.sip.ring_timeout_s, sip_traces=sip_traces, aliases_of=sources.aliases_of,
            background_sounds=BackgroundSounds(endpoint.pump, settings.data_dir), knowledge_search=knowledge_search,
        )  # fmt: skip
        trunk_provisioner = TrunkProvisioner(
            database, TrunkBuilder(key, hosts, settings.standby), endpoint.set_trunks, endpoint.trunk_status,
            trunk_policy,
        )  # fmt: skip
        service = inbox.service = _call_service(settings, key, deps, endpoint.call, trunk_provisioner, load)
        stack.push_async_callback(service.drain, 0)
        await service.recover()
        watch = CertificateReloader(endpoint)
        server = Server(
            settings, database, endpoint, engine, service, webhook_sender, sources, watch, endpoint.sip_port, load
        )
        service.on_capacity_changed = server.log_call_readiness
        disk = DiskSpace(database, settings.data_dir, settings.limits.disk_reserve_mb, service.on_disk_space)
        retention = Retention(database, settings.data_dir)
        ingester = DocumentIngester(database, settings.data_dir, indexer.wake, retention.request_wal_truncation)
        await ingester.recover()
        services = Services(
            settings=settings, database=database, secrets=key, catalogue=models,
            readiness=server.readiness, live_calls=lambda: service.active_call_count,
            trunk_status=trunk_provisioner.status,
            phone_numbers_changed=partial(_all, sources.on_number_change, trunk_provisioner.on_number_change),
            documents_waiting=ingester.wake, languages_changed=indexer.wake,
            calls_removed=retention.wake, webhooks_waiting=webhook_sender.wake,
            check_call_capacity=service.check_capacity, call_queued=service.start_queued_calls, hangup=service.hangup,
            sip_messages=sip_traces.messages, why_calls_rejected=server.why_refused, knowledge=knowledge_search,
            disk=disk,
        )  # fmt: skip
        await presets
        port = await stack.enter_async_context(listen(create_app(services), settings.api))
        server.api_origin = _origin(settings, port)
        if settings.links_follow_the_client:
            log.warning("api.public_url_not_set", links=settings.public_origin, remedy=NO_PUBLIC_URL)
        sip = SipControlContext(
            database,
            endpoint.sip_log,
            endpoint.take_messages,
            sip_traces,
            service,
            sources.aliases_of,
            services.trunk_status,
        )
        answers: dict[str, CommandHandler] = {
            **SipCommands(sip).handlers(),
            "trunks.changed": partial(_read_trunks, sources, trunk_provisioner),
        }
        await stack.enter_async_context(ControlServer(settings.data_dir, answers).listening())
        collector = SipCollector(endpoint.sip_log, trunk_provisioner.statuses)
        collector.register()
        stack.callback(collector.unregister)
        quota_monitor = QuotaMonitor(database, settings.data_dir, settings.quotas.model_dump())
        quota_monitor.register()
        stack.callback(quota_monitor.unregister)
        await sources.refresh()
        await hosts.wait_resolved(NAMES_S)
        await trunk_provisioner.refresh()
        await log_open_trunk_decisions(database, trunk_policy.mode)
        more: dict[str, Work] = {"disk": disk.run, "quotas": quota_monitor.run}
        _start_tasks(server, stack, _work(server, trunk_provisioner, ingester, indexer, retention) | more)
        log.info("ready", api=server.api_origin, **_sip_facts(server))
        yield server


def _work(
    server: Server,
    trunk_provisioner: TrunkProvisioner,
    ingester: DocumentIngester,
    indexer: KnowledgeIndexer,
    retention: Retention,
) -> dict[str, Work]:
    """What goes on in the background, by the names that the log calls it by."""
    work: dict[str, Work] = {
        "sources": server.sources.run,
        "trunks": trunk_provisioner.run,
        "knowledge": ingester.run,
        "knowledge index": indexer.run,
        "audit": partial(prune_periodically, server.database),
        "retention": retention.run,
        "housekeeping": partial(_housekeeping, server),
        "certificate": server.certificate.run,
    }
    if not server.settings.standby:
        work["webhooks"] = server.webhook_sender.run
    if server.load is not None:
        server.load.on_change = server.log_call_readiness
        work["models"] = server.load.run
    return work


async def _read_trunks(
    sources: SourceAllowlist,
    trunk_provisioner: TrunkProvisioner,
    _request: Mapping[str, Any],
    _connection: ControlConnection,
) -> None:
    """The operator has given or taken trunks: from now on that holds for whoever is heard and registered."""
    await trunk_provisioner.refresh()
    await sources.refresh()


def _all(*functions: Callable[[], None]) -> None:
    for function in functions:
        function()


class _Inbox:
    """Where the endpoint brings legs; the service exists only after the endpoint, before any source is known."""

    service: CallService

    def incoming(self, leg: Leg) -> None:
        self.service.incoming(leg)


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
        server.calls.start_queued_calls()  # a client may go between its call is stored and we learn of it


def _call_service(
    settings: Settings,
    secrets: Secrets,
    deps: CallDependencies,
    send_invite: SendInvite,
    trunks: TrunkProvisioner,
    load_shedder: ModelLoadShedder | None,
) -> CallService:
    policy = settings.trunks.policy
    dialer = OutboundDialer(
        dial=send_invite,
        trunk_of=trunks.ready_trunk,
        pacer=CallPacer(settings.limits.max_outbound_per_second),
        tcp=settings.sip.tcp,
        load_shedder=load_shedder,
        trunk_policy=policy,
    )
    return CallService(
        deps,
        _concurrency_limits(settings),
        dialer=dialer,
        digest_auth=InboundDigestAuth(secrets, DigestVerifier(settings.sip.digest_algorithms)),
        load_shedder=load_shedder,
        check_admission=inbound_funds_check(settings.billing),
        trunk_policy=policy,
    )


def _concurrency_limits(settings: Settings) -> ConcurrencyLimits:
    return ConcurrencyLimits(settings.limits.max_calls, settings.limits.max_calls_per_organization)


def _origin(settings: Settings, port: int) -> str:
    host = "127.0.0.1" if settings.api.host in ("0.0.0.0", "::") else settings.api.host
    return f"{'https' if settings.api.tls_cert else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _sip_facts(server: Server) -> dict[str, object]:
    sip, stats = server.settings.sip, server.endpoint.pump.stats()
    listening = {"sip": f"{bracketed(sip.host)}:{server.sip_port}", "tcp": sip.tcp, "tls": sip.tls_port or False}
    return {**listening, "realtime_audio": stats.realtime, "max_calls": server.settings.limits.max_calls}
