"""The parts of a server, each opened for as long as the server is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

import sqlalchemy as sa
import structlog
from prometheus_client import REGISTRY

from calls import metrics
from calls.egress.client import EgressClient
from calls.egress.concurrency import EgressConcurrency
from calls.tools.http_tool import ToolHttpAccess
from calls.trunks.host_tracker import HostTracker
from calls.trunks.trunk_policy import TrunkPolicy
from calls.webhooks.delivery import DeliveryPolicy, WebhookSender
from config.secrets import Secrets
from config.settings import Settings
from media.engine.engine import AudioEngine
from media.recording import RecordingWriter
from models.loading import loader
from models.loading.catalogue import Catalogue
from models.remote.config import RemoteModel
from models.tts.disk_cache import SpeechDiskCache
from sipcore.endpoint import Endpoint
from sipcore.resolver.system_resolver import SystemResolver
from storage.database import file_permissions, first_start, key_check, lock
from storage.database.database import Database
from storage.phone_numbers import trunk_grants
from storage.phone_numbers.trunk_grants import TrunkUse
from storage.phone_numbers.trunk_rules import Policy
from storage.webhooks import claims
from trunkline.wiring.audio_metrics import AudioCollector, GuardCollector
from trunkline.wiring.egress import egress_rules, egress_tls
from trunkline.wiring.remote_models import with_remote, without_remote
from trunkline.wiring.sip import sip_locator

log = structlog.get_logger()


async def open_models(
    settings: Settings,
    load_models: Callable[[Settings], Catalogue] | None,
    remotes: Sequence[RemoteModel],
    stack: AsyncExitStack,
) -> Catalogue:
    """Those that are here, and those on other machines."""
    files = await asyncio.to_thread(_speech_files, settings)
    loads = load_models or partial(_load_models, speech_files=files)
    here = await asyncio.to_thread(loads, without_remote(settings, remotes))
    stack.push_async_callback(asyncio.to_thread, here.close)
    return await with_remote(here, remotes, settings, stack, files)


async def open_database(settings: Settings, stack: AsyncExitStack) -> tuple[Database, Secrets]:
    """Ours alone, migrated, and the key that its secrets are encrypted with. The database comes first: it says whether
    a key may be made."""
    database = Database(settings.database_url)
    stack.enter_context(lock.hold_database(database.path))
    where = settings.data_dir, database.path, settings.secret_key_path
    await asyncio.to_thread(file_permissions.make_private, *where)
    await asyncio.to_thread(first_start.check, *where)
    stack.push_async_callback(database.close)
    await database.open()
    return database, await key_check.load(database, settings.secret_key_path)


def _speech_files(settings: Settings) -> SpeechDiskCache | None:
    most = settings.models.speech_cache_mb * 1024 * 1024
    return SpeechDiskCache(settings.data_dir / "speech", most) if most else None


def _load_models(settings: Settings, speech_files: SpeechDiskCache | None) -> Catalogue:
    chosen = settings.models
    return loader.load(
        settings.models_dir, chosen.stt, chosen.llm, chosen.tts, chosen.eot, chosen.stt_second,
        on_speech=lambda origin: metrics.SPOKEN_PIECES.labels(origin=origin).inc(), speech_files=speech_files,
        calls=settings.limits.max_calls, embedding=chosen.embedding,
    )  # fmt: skip


async def open_egress(
    settings: Settings, database: Database, key: Secrets, stack: AsyncExitStack
) -> tuple[WebhookSender, ToolHttpAccess]:
    """For webhooks and for tools, with a client each: neither waits for the other's slow name servers. We hold the
    database's lock: who has claimed webhooks there is dead."""
    await database.write(claims.release_all)
    tls, rules = await egress_tls(settings), egress_rules(settings)
    clients = EgressClient(rules, tls), EgressClient(rules, tls)
    for client in clients:
        stack.push_async_callback(client.close)
    webhooks = settings.webhooks
    policy = DeliveryPolicy(webhooks.allow_http, webhooks.timeout_s, webhooks.retry_delays_s)
    return WebhookSender(database, clients[0], key, policy), ToolHttpAccess(clients[1], EgressConcurrency(), key)


def open_host_tracker(settings: Settings, endpoint: Endpoint, gate: TrunkPolicy, stack: AsyncExitStack) -> HostTracker:
    """The tracker of trunk hosts' addresses, which resolves them without PJSIP and gives PJSIP the host table."""
    hosts = SystemResolver()
    stack.callback(hosts.close)
    places = HostTracker(sip_locator(settings, hosts).locate, endpoint.set_host_table)
    places.is_allowed, gate.resolved_hosts = gate.is_allowed, places.all_resolved_addresses
    endpoint.on_unresponsive = places.demote
    stack.push_async_callback(places.close)
    return places


async def log_open_trunk_decisions(database: Database, policy: Policy) -> None:
    """Log the numbers that use trunks from before the trunk policy, for the operator to allow or deny."""

    def look(conn: sa.Connection) -> tuple[bool, list[TrunkUse]]:
        rules = trunk_grants.rules(conn, policy)
        return rules.enforced, [each for each in trunk_grants.uses(conn, rules) if each.standing == "taken_over"]

    enforced, uses = await database.read(look)
    if enforced and uses:
        log.warning(
            "trunks.to_decide",
            policy=policy,
            organizations=len({each.organization_id for each in uses}),
            trunks=len({each.trunk for each in uses}),
            numbers=len({number.id for each in uses for number in each.numbers}),
            what="they still use trunks that no operator has allowed to their organizations",
            remedy="run `trunkline trunk list`, then `trunkline trunk allow` or `trunkline trunk deny` for each trunk",
        )


def open_audio(endpoint: Endpoint, stack: AsyncExitStack) -> tuple[AudioEngine, RecordingWriter]:
    """The audio engine and the writer of recordings, both running, with their metrics registered."""
    writer = RecordingWriter()
    writer.start()
    stack.push_async_callback(asyncio.to_thread, writer.close)
    engine = AudioEngine(endpoint.pump, asyncio.get_running_loop().call_soon_threadsafe)
    engine.start()
    stack.push_async_callback(asyncio.to_thread, engine.close)
    for collector in (AudioCollector(endpoint.pump, engine), GuardCollector()):
        REGISTRY.register(collector)
        stack.callback(REGISTRY.unregister, collector)
    return engine, writer
