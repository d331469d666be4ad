"""Server start-up: starts every part in order, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib import metadata
from typing import Any, Final

import structlog

from api.app import create_app
from api.services import NodeIdentity, Services
from api.serving.listener import listen
from calls.admission.balance_check import inbound_balance_check
from calls.admission.concurrency_limits import ConcurrencyLimits
from calls.admission.digest_auth import InboundDigestAuth
from calls.admission.load_shedding import ModelLoadShedder
from calls.admission.rejection import RETRY_AFTER_S
from calls.call_record.billing import RateCard
from calls.call_record.outcome import CallOutcome
from calls.call_record.sip_trace import CallSipTraces
from calls.chat.chats import Chats
from calls.knowledge.indexer import KnowledgeIndexer
from calls.knowledge.ingestion import DocumentIngester
from calls.knowledge.search import KnowledgeSearch
from calls.knowledge.vector_search import VectorSearch
from calls.live.capacity import CapacityFeed
from calls.live.document_feed import DocumentFeed
from calls.live.live_calls import LiveCalls
from calls.live.node_capacity import report_of
from calls.live.node_reachability import NodeReachability
from calls.live.number_feed import NumberFeed
from calls.live.server_state import ServerState
from calls.outbound.dial_audit import prune_periodically
from calls.outbound.dialer import OutboundDialer
from calls.outbound.pacing import CallPacer
from calls.post_call.analysis import CallAnalyzer
from calls.post_call.finalizer import CallFinalizer
from calls.post_call.recording_uploader import RecordingUploader
from calls.post_call.retention_worker import RetentionWorker
from calls.quota_accounting import QuotaAccounting
from calls.service import CallService
from calls.session.audio_loop_cache import AudioLoopCache
from calls.session.background_audio import BackgroundSounds
from calls.session.dependencies import CallDependencies
from calls.session.hold_music import HoldMusic
from calls.trunks.dialog_recovery import DialogRecorder, DialogRecovery
from calls.trunks.node_trunk_statuses import NodeTrunkStatuses
from calls.trunks.provisioning import TrunkProvisioner
from calls.web_call.takeovers import Takeovers
from calls.web_call.web_calls import WebCalls
from calls.webhooks.delivery import WebhookSender
from config.secrets import Secrets
from config.settings import Settings
from config.settings_loader import remove_variables
from models.loading.catalogue import Catalogue
from models.loading.language_gaps import language_gaps
from models.remote.outcomes import RemoteOutcomes
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from sipcore.messages.headers import bracketed
from sipcore.security.digest import DigestVerifier
from sipcore.trunks.registration_client import REGISTERS_PER_SECOND
from storage.agents import remote_models
from storage.background_sounds import presets as preset_sounds
from storage.calls.call_journal import CallJournal
from storage.calls.calls import Call
from storage.calls.dialog_journal import DialogFiles
from storage.database import server_lock
from storage.database.database import Database
from storage.database.disk_space import DiskSpace
from storage.database.sqlite import upgrade_backup
from storage.nodes import shared_limits
from storage.nodes.membership import NodeLoad
from storage.phone_numbers.admission_replica import AdmissionReplica
from storage.recording_store.recording_files import RecordingFiles
from trunkline.backup import restore_journal
from trunkline.replay.replayer import CallReplayer
from trunkline.server.api_certificate import ApiCertificate
from trunkline.server.certificate_reload import CertificateReloader
from trunkline.server.control_socket import ControlServer
from trunkline.server.file_descriptor_limit import raise_file_descriptor_limit
from trunkline.server.operator_commands import OperatorCommands
from trunkline.server.server import Server
from trunkline.server.server_state import server_state
from trunkline.server.service_manager import ServiceManager
from trunkline.server.signals import ProcessSignals
from trunkline.server.sip_commands import SipCommands, SipControlContext
from trunkline.user_admin import FIRST_OPERATOR, first_operator_address, first_password_command
from trunkline.wiring.admission_reads import open_admission_reads
from trunkline.wiring.agent_languages import agents_with_gaps
from trunkline.wiring.audio import open_audio
from trunkline.wiring.database import join_nodes, node_identity, open_server_database
from trunkline.wiring.database_wait import StoppedWhileWaiting
from trunkline.wiring.http_egress import open_http_egress
from trunkline.wiring.load_shedding import model_load_shedder
from trunkline.wiring.models import model_installer, open_models
from trunkline.wiring.node_metrics import register_node_metrics
from trunkline.wiring.recordings import open_recordings
from trunkline.wiring.remote_metrics import register_remote_metrics
from trunkline.wiring.remote_models import decrypted, probe_remote_model, without_remote_models
from trunkline.wiring.sip import endpoint_settings
from trunkline.wiring.sip_metrics import SipCollector, register_guard_metrics
from trunkline.wiring.trunks import TrunkComponents, carrier_accounts, open_trunks

HOUSEKEEPING_EVERY_S: Final = 2.0
"""Between two runs of `_housekeeping`."""

SWITCH_INTERVAL_S: Final = 0.001
"""How long a thread keeps the interpreter while others wait for it (Python's default is 5 ms): the tick thread needs it
many times a tick."""

PUBLIC_URL_REMEDY: Final = (
    "set [api] public_url to the address that clients use: until then links in responses name the Host that each "
    "client sends, and links in webhooks this one"
)

BackgroundTask = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger()


def freeze_gc() -> None:
    """Exclude all existing objects, models and code, from garbage collection: they stay for the life of the process,
    and a collection of them stops everything for tenths of a second."""
    gc.collect()
    gc.freeze()


async def serve(settings: Settings) -> None:
    """Serve until a signal stops the server. Raises `StartupError` if it cannot start."""
    signals = ProcessSignals()
    signals.install()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    remove_variables(os.environ)
    manager = ServiceManager(os.environ)
    async with manager.informed(signals.drain, settings.sip.drain_timeout_s):
        with suppress(StoppedWhileWaiting):
            async with running_server(settings, stopped=signals.drain) as server:
                freeze_gc()
                signals.on_sighup = server.reload_certificates
                manager.ready(server.audio_advances)
                await _tell_first_operator(server)
                await server.run_until_stopped(signals)


async def _tell_first_operator(server: Server) -> None:
    """While nobody can sign in: print the one-time link of the first operator on a terminal. A log never has it."""
    if sys.stdout.isatty():
        address = await first_operator_address(server.database, server.api_origin)
        if address is not None:
            print(
                f"The dashboard: {address} (the link sets the password of {FIRST_OPERATOR}; it works once)", flush=True
            )
        return
    command = await server.database.read(first_password_command)
    if command is not None:
        log.info("dashboard.no_user", command=command)


@asynccontextmanager
async def running_server(
    settings: Settings,
    load_models: Callable[[Settings], Catalogue] | None = None,
    stopped: asyncio.Event | None = None,
) -> AsyncIterator[Server]:
    """Start a server that accepts traffic while the block runs, and stop it afterwards. `load_models` replaces the
    local models in tests and benchmarks. Raises `StartupError`; `StoppedWhileWaiting` if `stopped` is set while it
    waits for the database."""
    raise_file_descriptor_limit(settings.limits.max_calls, settings.api.max_connections)
    async with AsyncExitStack() as stack:
        stack.enter_context(server_lock.lock_data_dir(settings.data_dir))
        stack.callback(log.info, "stopped")
        restore_journal.resume(settings.data_dir)
        recording_files = await open_recordings(settings)
        database, key = await open_server_database(settings, stack, stopped or asyncio.Event())
        membership = await join_nodes(settings, database, stack)
        node = await node_identity(settings, membership)
        presets = asyncio.create_task(preset_sounds.install_presets(database, settings.data_dir), name="preset sounds")
        stack.push_async_callback(asyncio.wait, (presets,))
        incoming = _IncomingLegs()
        dialogs = DialogFiles(settings.data_dir)
        stack.push_async_callback(asyncio.to_thread, dialogs.close)
        endpoint = Endpoint(endpoint_settings(settings), incoming.handle, DialogRecorder(dialogs))
        await endpoint.start()
        endpoint.set_accepting(False, RETRY_AFTER_S)
        stack.push_async_callback(endpoint.close)
        carriers = await asyncio.to_thread(carrier_accounts, settings.providers)
        registrations = membership.share("registration", REGISTERS_PER_SECOND, takes_part=not settings.standby)
        trunks = open_trunks(settings, database, key, endpoint, stack, carriers, registrations)
        await trunks.sources.refresh()  # they get 503 while the models load
        await _end_orphaned_dialogs(dialogs, trunks, endpoint, stack)  # models take longer than peers may wait
        stored_remotes = await database.read(remote_models.all_of)
        remotes = [decrypted(each, key) for each in stored_remotes]
        outcomes = RemoteOutcomes()
        register_remote_metrics(outcomes, stack)
        register_node_metrics(settings.node.effective_name, metadata.version("trunkline"), membership.health, stack)
        models = await open_models(settings, load_models, remotes, stack, outcomes)
        for gap in await agents_with_gaps(database, models):
            log.warning("agents.language_gap", agents=gap.agents, problem=gap.problem)
        load_shedder = model_load_shedder(settings, models)
        http = await open_http_egress(settings, database, key, membership, stack)
        webhook_sender = http.webhook_sender
        register_guard_metrics(stack)
        engine, recordings = open_audio(endpoint, stack)
        sip_traces = CallSipTraces(database, endpoint.sip_capture, endpoint.update_sip_capture)
        stack.push_async_callback(sip_traces.close)
        journal = CallJournal(settings.data_dir, key)
        stack.push_async_callback(journal.close)
        finalizer = CallFinalizer(
            database, key, settings.public_origin, webhook_sender.wake, RateCard.from_settings(settings.billing),
            CallAnalyzer(models, settings.after_call.max_wait_s), journal,
        )  # fmt: skip
        await journal.open()
        live_calls, reachability = LiveCalls(), NodeReachability()
        finalizer.on_pending, finalizer.on_closed = live_calls.end, live_calls.on_stored_end
        finalizer.on_recovered = live_calls.on_recovered
        uploader = _open_uploader(database, recording_files, finalizer, stack)
        vectors = None if models.embeddings is None else VectorSearch(database, models.embeddings)
        if vectors is not None:
            await vectors.pgvector.is_usable()  # its log line says so
        knowledge_search, indexer = KnowledgeSearch(database, vectors), KnowledgeIndexer(database, vectors)
        loops = AudioLoopCache(endpoint.pump)
        sounds = BackgroundSounds(loops, settings.data_dir)
        admission_reads, replica = open_admission_reads(settings, database, stack)
        deps = CallDependencies(
            database=database, engine=engine, recordings=recordings, models=models, finalizer=finalizer,
            data_dir=settings.data_dir, tool_http=http.tool_http, rtp_timeout_s=settings.sip.rtp_timeout_s,
            ring_timeout_s=settings.sip.ring_timeout_s, sip_traces=sip_traces, aliases_of=trunks.sources.aliases_of,
            background_sounds=sounds, hold_music=HoldMusic(loops, settings.data_dir, sounds),
            knowledge_search=knowledge_search, webhook_queued=webhook_sender.wake, live_turns=http.live_turns,
            live_calls=live_calls, admission_reads=admission_reads,
        )  # fmt: skip
        calls = incoming.calls = _call_service(
            settings, key, deps, endpoint, trunks.provisioner, load_shedder, membership.share_of
        )
        stack.push_async_callback(calls.drain, 0)
        await calls.replay_journal()
        await calls.recover(membership.dead_nodes_at_start)
        server = Server(
            settings=settings, database=database, endpoint=endpoint, engine=engine, calls=calls,
            webhook_sender=webhook_sender, sources=trunks.sources, certificate_reloader=CertificateReloader(endpoint),
            api_certificate=ApiCertificate(settings),
            sip_port=endpoint.sip_port, load_shedder=load_shedder,
            hand_over=membership.hand_over,
        )  # fmt: skip
        web_calls = WebCalls(
            deps, calls.transfer_dependencies, calls.start, endpoint.pump, endpoint.open_pcm_channel,
        )  # fmt: skip
        takeovers = Takeovers(calls, endpoint.pump, endpoint.open_pcm_channel, web_calls.connect)
        chats = Chats(deps, calls.start)
        disk = DiskSpace(database, settings.data_dir, settings.limits.disk_reserve_mb, calls.on_outage_over)

        def state() -> ServerState:
            return server_state(server, disk.rejection_reason, reachability.warning)

        capacity = CapacityFeed(database, live_calls.events, calls.capacity, state, None if node is None else node.name)
        reachability.on_change = capacity.on_change
        statuses = _node_trunk_statuses(database, node, trunks)
        calls.on_capacity_changed = server.update_accepting
        server.on_accepting = partial(_call_both, capacity.on_change, membership.on_load)
        calls.refused_invites.on_added = live_calls.on_refused
        numbers = NumberFeed(live_calls.events, trunks.provisioner.statuses_of, trunks.provisioner.status)
        endpoint.on_trunk_status, trunks.provisioner.on_read = numbers.on_trunk_status, numbers.on_read
        retention = RetentionWorker(database, settings.data_dir, recording_files)
        ingester = DocumentIngester(
            database, settings.data_dir, indexer.wake, retention.request_wal_truncation,
            DocumentFeed(live_calls.events).on_changed,
        )  # fmt: skip
        replayer = CallReplayer(without_remote_models(settings, remotes))
        installer = model_installer(settings, models, lambda: calls.active_call_count)
        stack.push_async_callback(installer.close)
        services = Services(
            settings=settings, database=database, secrets=key, catalogue=models, model_installer=installer,
            loaded_remote_models=frozenset(each.version for each in stored_remotes),
            remote_outcomes=outcomes, probe_remote_model=partial(probe_remote_model, settings, database, key),
            voice_sample=models.voice_sample, voice_preview=models.voice_preview,
            refused_invites=calls.refused_invites.of, unknown_sources=endpoint.unknown_sources.latest,
            language_gaps=partial(language_gaps, models),
            readiness=server.readiness, live_calls=lambda: calls.active_call_count,
            trunk_status=trunks.provisioner.status, phone_numbers_changed=trunks.on_number_change,
            documents_changed=ingester.wake, languages_changed=indexer.wake,
            calls_deleted=retention.wake, webhook_queued=webhook_sender.wake,
            check_call_capacity=calls.check_capacity, call_queued=calls.start_queued_calls, hangup=calls.hangup,
            transfer=calls.transfer, set_held=calls.set_held,
            listen=calls.listen, whisper=calls.whisper, sip_trace=sip_traces.messages,
            start_web_call=web_calls.add, connect_web_call=takeovers.connect, offer_takeover=takeovers.offer,
            call_rejection_reason=server.rejection_reason, replay=replayer.replay,
            open_chat=chats.open, send_chat_message=chats.send,
            knowledge=knowledge_search, disk=disk, http_client=http.api_client,
            events=live_calls.events, live_call=live_calls.details, capacity=capacity.of,
            live_calls_of=live_calls.of_organization,
            node=node, nodes=membership.nodes, node_reachability=reachability,
            phone_number_stored=numbers.on_stored, phone_number_deleted=numbers.on_deleted,
            recordings=recording_files,
        )  # fmt: skip
        await presets
        await _open_api(server, services, stack)
        await _open_control_socket(server, services, sip_traces, trunks, stack)
        sip_metrics = SipCollector(endpoint.sip_capture, trunks.provisioner.statuses)
        sip_metrics.register()
        stack.callback(sip_metrics.unregister)
        quota_accounting = QuotaAccounting(database, settings.data_dir, settings.quotas.model_dump(), recording_files)
        quota_accounting.register()
        stack.callback(quota_accounting.unregister)
        await trunks.start()
        server.update_accepting()
        database.on_change = partial(_on_change, trunks, calls, ingester, retention, replica)
        database.on_reconnect = calls.on_outage_over
        membership.report, membership.on_down = (
            partial(_node_load, server, state),
            partial(_on_nodes_down, calls, webhook_sender),
        )
        membership.on_load()
        tasks: dict[str, BackgroundTask] = {
            "trunks": trunks.provisioner.run,
            "knowledge": partial(membership.run_alone, "knowledge", partial(_ingest, ingester)),
            "knowledge index": partial(membership.run_alone, "knowledge index", indexer.run),
            "retention": partial(membership.run_alone, "retention", retention.run),
            "audit": partial(
                membership.run_alone,
                "audit",
                partial(prune_periodically, database, timedelta(days=settings.audit.keep_days)),
            ),
            "disk": disk.run,
            "call journal": calls.replay_journal_periodically,
            "calls without a row": calls.store_rows_periodically,
            "live calls": live_calls.run,
            "capacity": capacity.run,
            "quotas": quota_accounting.run,
        }
        if node is not None:
            tasks["recording removals"] = retention.recording_remover.run
        if statuses is not None:
            tasks["trunk statuses"] = statuses.run
        if uploader is not None:
            tasks["recordings"] = uploader.run
        if replica is not None:
            tasks["admission replica"] = replica.run
        _start_tasks(server, stack, tasks | _server_tasks(server))
        log.info("ready", api=server.api_origin, **_ready_fields(server))
        yield server


def _open_uploader(
    database: Database, files: RecordingFiles, finalizer: CallFinalizer, stack: AsyncExitStack
) -> RecordingUploader | None:
    """What moves recordings to their store; None if they stay where they are."""
    if files.store is None or files.read_only:
        return None
    uploader, on_closed = RecordingUploader(database, files), finalizer.on_closed

    def close(call: Call, outcome: CallOutcome) -> None:
        on_closed(call, outcome)
        uploader.add(call)

    finalizer.on_closed = close
    uploader.register()
    stack.callback(uploader.unregister)
    return uploader


def _node_trunk_statuses(
    database: Database, node: NodeIdentity | None, trunks: TrunkComponents
) -> NodeTrunkStatuses | None:
    """What tells the other nodes of the registrations of this one, and this one of theirs; None for the only server."""
    if node is None:
        return None
    provisioner = trunks.provisioner
    statuses = NodeTrunkStatuses(database, node.name, provisioner.own_registrations, provisioner.on_other_nodes)
    provisioner.status_of_other_node = statuses.of
    return statuses


def _node_load(server: Server, state: Callable[[], ServerState]) -> NodeLoad:
    return replace(server.node_load(), report=report_of(state()))


def _call_both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()


TRUNK_TABLES: Final = frozenset(("phone_numbers", "phone_number_sources", "trunk_grants", "organizations"))


def _on_change(
    trunks: TrunkComponents,
    calls: CallService,
    ingester: DocumentIngester,
    retention: RetentionWorker,
    replica: AdmissionReplica | None,
    changed: frozenset[str] | None,
) -> None:
    """Wake what works on rows that another node has changed."""
    if replica is not None:
        replica.on_change(changed)
    if changed is None or changed & TRUNK_TABLES:
        trunks.on_number_change()
    if changed is None or "calls" in changed:
        calls.start_queued_calls()
    if changed is None or "knowledge_documents" in changed:
        ingester.wake()
    if changed is None or "recording_removals" in changed:
        retention.wake()


async def _on_nodes_down(calls: CallService, webhook_sender: WebhookSender, names: Collection[str]) -> None:
    """Close the calls of nodes that are down, and send the webhooks that these had claimed."""
    webhook_sender.wake()
    await calls.recover(names)


async def _ingest(ingester: DocumentIngester) -> None:
    await ingester.recover()
    await ingester.run()


async def _end_orphaned_dialogs(
    files: DialogFiles, trunks: TrunkComponents, endpoint: Endpoint, stack: AsyncExitStack
) -> None:
    """Send a BYE or CANCEL in every dialog that a killed process has left."""
    recovery = DialogRecovery(
        files, trunks.database, trunks.provisioner.builder, trunks.authorizer, endpoint.end_orphaned_dialog
    )
    stack.push_async_callback(recovery.close)
    await recovery.end_all()


async def _open_api(server: Server, services: Services, stack: AsyncExitStack) -> None:
    """Serve the HTTP API until `stack` is closed."""
    settings = server.settings
    certificate = server.api_certificate
    await certificate.open()
    port = await stack.enter_async_context(listen(create_app(services), settings.api, certificate.in_use))
    server.api_origin = _origin(settings, port)
    if settings.links_use_host_header:
        log.warning("api.public_url_not_set", links=settings.public_origin, remedy=PUBLIC_URL_REMEDY)


async def _open_control_socket(
    server: Server, services: Services, sip_traces: CallSipTraces, trunks: TrunkComponents, stack: AsyncExitStack
) -> None:
    """Serve the control socket until `stack` is closed."""
    endpoint = server.endpoint
    context = SipControlContext(
        database=server.database,
        sip_capture=endpoint.sip_capture,
        update_sip_capture=endpoint.update_sip_capture,
        sip_traces=sip_traces,
        service=server.calls,
        aliases_of=trunks.sources.aliases_of,
        trunk_status=trunks.provisioner.status,
    )
    handlers = {**SipCommands(context).handlers(), **OperatorCommands(services, trunks.refresh).handlers()}
    await stack.enter_async_context(ControlServer(server.settings.data_dir, handlers).listening())


def _server_tasks(server: Server) -> dict[str, BackgroundTask]:
    """The background tasks of the server's own parts, by the names that the log has for them."""
    tasks: dict[str, BackgroundTask] = {
        "sources": server.sources.run,
        "housekeeping": partial(_housekeeping, server),
        "certificate": server.certificate_reloader.run,
        "api certificate": server.api_certificate.run,
    }
    if server.database.is_sqlite:
        tasks["upgrade backups"] = partial(upgrade_backup.prune_periodically, server.database.path)
    if not server.settings.standby:
        tasks["webhooks"] = server.webhook_sender.run
    if server.load_shedder is not None:
        server.load_shedder.on_change = server.update_accepting
        tasks["models"] = server.load_shedder.run
    return tasks


class _IncomingLegs:
    """Hands incoming legs to the call service, which is created after the endpoint and before it accepts calls."""

    calls: CallService

    def handle(self, leg: Leg) -> None:
        self.calls.on_incoming_call(leg)


def _start_tasks(server: Server, stack: AsyncExitStack, tasks: Mapping[str, BackgroundTask]) -> None:
    """Run the background tasks until `stack` is closed."""
    running = [asyncio.create_task(_run_task(server, name, task), name=name) for name, task in tasks.items()]

    async def cancel_all() -> None:
        for task in running:
            task.cancel()
        await asyncio.wait(running)

    stack.push_async_callback(cancel_all)


async def _run_task(server: Server, name: str, task: BackgroundTask) -> None:
    """Run a background task; if it fails, log the error and make the server not ready."""
    try:
        await task()
    except Exception as error:
        log.error("server.task_failed", task=name, error=repr(error), exc_info=error)
        server.parts[name] = "failed, see the log"


async def _housekeeping(server: Server) -> None:
    while True:
        await asyncio.sleep(HOUSEKEEPING_EVERY_S)
        server.endpoint.log_guard_events()
        server.check_audio()
        # a client may disconnect after its call is stored and before it is started
        server.calls.start_calls_queued_meanwhile()


def _call_service(
    settings: Settings,
    secrets: Secrets,
    deps: CallDependencies,
    endpoint: Endpoint,
    trunks: TrunkProvisioner,
    load_shedder: ModelLoadShedder | None,
    node_share: Callable[[int], int],
) -> CallService:
    policy = settings.trunks.policy
    dialer = OutboundDialer(
        dial=endpoint.call,
        trunk_of=trunks.ready_trunk,
        pacer=_call_pacer(settings.limits.max_outbound_per_second, deps.database),
        tcp=settings.sip.tcp,
        load_shedder=load_shedder,
        trunk_policy=policy,
    )
    return CallService(
        deps,
        ConcurrencyLimits(settings.limits.max_calls, settings.limits.max_calls_per_organization),
        dialer=dialer,
        digest_auth=InboundDigestAuth(secrets, DigestVerifier(settings.sip.digest_algorithms)),
        load_shedder=load_shedder,
        check_admission=inbound_balance_check(settings.billing),
        trunk_policy=policy,
        pump=endpoint.pump,
        refer_timeout_s=settings.sip.refer_timeout_s,
        inbound_codecs=trunks.builder.codecs,
        node_share=node_share,
    )


def _call_pacer(per_second: float, database: Database) -> CallPacer:
    """The pacer of this server, or of all nodes."""
    if database.is_sqlite:
        return CallPacer(per_second)
    reserve = partial(shared_limits.reserve_start, per_second=per_second)
    return CallPacer(per_second, reserve_start=lambda: database.write(reserve, lock=shared_limits.PACE_LOCK))


def _origin(settings: Settings, port: int) -> str:
    host = "127.0.0.1" if settings.api.host in ("0.0.0.0", "::") else settings.api.host
    return f"{'https' if settings.api.https_only else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _ready_fields(server: Server) -> dict[str, object]:
    sip, stats = server.settings.sip, server.endpoint.pump.stats()
    listening = {"sip": f"{bracketed(sip.host)}:{server.sip_port}", "tcp": sip.tcp, "tls": sip.tls_port or False}
    https = {"https": server.settings.api.https_port} if server.settings.api.https_port else {}
    return {**https, **listening, "realtime_audio": stats.realtime, "max_calls": server.settings.limits.max_calls}
