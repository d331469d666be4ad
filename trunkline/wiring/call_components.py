"""What runs the calls of a server: the call service, and what its sessions use."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from calls.admission.balance_check import inbound_balance_check
from calls.admission.concurrency_limits import ConcurrencyLimits
from calls.admission.digest_auth import InboundDigestAuth
from calls.call_record.billing import RateCard
from calls.call_record.outcome import CallOutcome
from calls.call_record.sip_trace import CallSipTraces
from calls.knowledge.indexer import KnowledgeIndexer
from calls.knowledge.search import KnowledgeSearch
from calls.knowledge.vector_search import VectorSearch
from calls.live.live_calls import LiveCalls
from calls.outbound.dialer import OutboundDialer
from calls.outbound.pacing import CallPacer
from calls.post_call.analysis import CallAnalyzer
from calls.post_call.finalizer import CallFinalizer
from calls.post_call.recording_uploader import RecordingUploader
from calls.service import CallService
from calls.session.audio_loop_cache import AudioLoopCache
from calls.session.background_audio import BackgroundSounds
from calls.session.dependencies import CallDependencies
from calls.session.hold_music import HoldMusic
from config.settings import Settings
from sipcore.security.digest import DigestVerifier
from storage.calls.call_journal import CallJournal
from storage.calls.calls import Call
from storage.database.database import Database
from storage.nodes import shared_limits
from storage.phone_numbers.admission_replica import AdmissionReplica
from storage.recording_store.recording_files import RecordingFiles
from trunkline.wiring.audio import open_audio
from trunkline.wiring.http_egress import HttpEgress, open_http_egress
from trunkline.wiring.models.server_models import ServerModels
from trunkline.wiring.sip.sip_metrics import register_guard_metrics
from trunkline.wiring.sip.sip_stack import SipStack
from trunkline.wiring.storage.admission_reads import open_admission_reads
from trunkline.wiring.storage.server_storage import ServerStorage


@dataclass(frozen=True)
class CallComponents:
    """The call service and its surroundings. `uploader`: None if recordings stay where they are; `replica`: None
    without a grace period."""

    service: CallService
    deps: CallDependencies
    live_calls: LiveCalls
    http: HttpEgress
    sip_traces: CallSipTraces
    knowledge_search: KnowledgeSearch
    indexer: KnowledgeIndexer
    uploader: RecordingUploader | None
    replica: AdmissionReplica | None


async def open_call_components(
    settings: Settings, storage: ServerStorage, sip: SipStack, models: ServerModels, stack: AsyncExitStack
) -> CallComponents:
    """Open them until `stack` is closed, which ends all calls, and close the calls that a former process has left.
    Raises `StartupError`."""
    database, endpoint = storage.database, sip.endpoint
    http = await open_http_egress(settings, database, storage.secrets, storage.membership, stack)
    register_guard_metrics(stack)
    engine, recordings = open_audio(endpoint, stack)
    sip_traces = CallSipTraces(database, endpoint.sip_capture, endpoint.update_sip_capture)
    stack.push_async_callback(sip_traces.close)
    live_calls = LiveCalls()
    finalizer = await _open_finalizer(settings, storage, models, http, live_calls, stack)
    uploader = _open_uploader(database, storage.recording_files, finalizer, stack)
    knowledge_search, indexer = await _open_knowledge(database, models)
    loops = AudioLoopCache(endpoint.pump)
    sounds = BackgroundSounds(loops, settings.data_dir)
    admission_reads, replica = open_admission_reads(settings, database, stack)
    deps = CallDependencies(
        database=database, engine=engine, recordings=recordings, models=models.catalogue, finalizer=finalizer,
        data_dir=settings.data_dir, tool_http=http.tool_http, rtp_timeout_s=settings.sip.rtp_timeout_s,
        ring_timeout_s=settings.sip.ring_timeout_s, sip_traces=sip_traces, aliases_of=sip.trunks.sources.aliases_of,
        background_sounds=sounds, hold_music=HoldMusic(loops, settings.data_dir, sounds),
        knowledge_search=knowledge_search, webhook_queued=http.webhook_sender.wake, live_turns=http.live_turns,
        live_calls=live_calls, admission_reads=admission_reads,
    )  # fmt: skip
    service = sip.incoming.calls = _call_service(settings, storage, deps, sip, models)
    stack.push_async_callback(service.drain, 0)
    await service.replay_journal()
    await service.recover(storage.membership.dead_nodes_at_start)
    return CallComponents(service, deps, live_calls, http, sip_traces, knowledge_search, indexer, uploader, replica)


async def _open_finalizer(
    settings: Settings,
    storage: ServerStorage,
    models: ServerModels,
    http: HttpEgress,
    live_calls: LiveCalls,
    stack: AsyncExitStack,
) -> CallFinalizer:
    """The finalizer, with its journal, which tells the live views of the ends of calls."""
    journal = CallJournal(settings.data_dir, storage.secrets)
    stack.push_async_callback(journal.close)
    finalizer = CallFinalizer(
        storage.database, storage.secrets, settings.public_origin, http.webhook_sender.wake,
        RateCard.from_settings(settings.billing), CallAnalyzer(models.catalogue, settings.after_call.max_wait_s),
        journal,
    )  # fmt: skip
    await journal.open()
    finalizer.on_pending, finalizer.on_closed = live_calls.end, live_calls.on_stored_end
    finalizer.on_recovered = live_calls.on_recovered
    return finalizer


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


async def _open_knowledge(database: Database, models: ServerModels) -> tuple[KnowledgeSearch, KnowledgeIndexer]:
    embeddings = models.catalogue.embeddings
    vectors = None if embeddings is None else VectorSearch(database, embeddings)
    if vectors is not None:
        await vectors.pgvector.is_usable()  # its log line says so
    return KnowledgeSearch(database, vectors), KnowledgeIndexer(database, vectors)


def _call_service(
    settings: Settings, storage: ServerStorage, deps: CallDependencies, sip: SipStack, models: ServerModels
) -> CallService:
    policy, trunks = settings.trunks.policy, sip.trunks.provisioner
    dialer = OutboundDialer(
        dial=sip.endpoint.call,
        trunk_of=trunks.ready_trunk,
        pacer=_call_pacer(settings.limits.max_outbound_per_second, deps.database),
        tcp=settings.sip.tcp,
        load_shedder=models.load_shedder,
        trunk_policy=policy,
    )
    return CallService(
        deps,
        ConcurrencyLimits(settings.limits.max_calls, settings.limits.max_calls_per_organization),
        dialer=dialer,
        digest_auth=InboundDigestAuth(storage.secrets, DigestVerifier(settings.sip.digest_algorithms)),
        load_shedder=models.load_shedder,
        check_admission=inbound_balance_check(settings.billing),
        trunk_policy=policy,
        pump=sip.endpoint.pump,
        refer_timeout_s=settings.sip.refer_timeout_s,
        inbound_codecs=trunks.builder.codecs,
        node_share=storage.membership.share_of,
    )


def _call_pacer(per_second: float, database: Database) -> CallPacer:
    """The pacer of this server, or of all nodes."""
    if database.is_sqlite:
        return CallPacer(per_second)
    reserve = partial(shared_limits.reserve_start, per_second=per_second)
    return CallPacer(per_second, reserve_start=lambda: database.write(reserve, lock=shared_limits.PACE_LOCK))
