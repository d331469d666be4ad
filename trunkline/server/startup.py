"""Server start-up: starts every part in order, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib import metadata
from typing import Final

import structlog

from api.app import create_app
from api.services import Services
from api.serving.listener import listen
from calls.quota_accounting import QuotaAccounting
from calls.service import CallService
from calls.webhooks.delivery import WebhookSender
from config.settings import Settings
from config.settings_loader import remove_variables
from models.loading.catalogue import Catalogue
from sipcore.messages.headers import bracketed
from storage.database import server_lock
from storage.database.errors import StorageUnavailable
from trunkline.server.api_certificate import ApiCertificate
from trunkline.server.api_services import api_services
from trunkline.server.background_tasks import background_tasks, start_tasks
from trunkline.server.certificate_reload import CertificateReloader
from trunkline.server.control_socket import ControlServer
from trunkline.server.data_workers import DataWorkers, data_workers
from trunkline.server.file_descriptor_limit import raise_file_descriptor_limit
from trunkline.server.live_feeds import LiveFeeds, connect_live_feeds
from trunkline.server.operator_commands import OperatorCommands
from trunkline.server.server import Server
from trunkline.server.service_manager import ServiceManager
from trunkline.server.signals import ProcessSignals
from trunkline.server.sip_commands import SipCommands, SipControlContext
from trunkline.user_admin import FIRST_OPERATOR, first_operator_address, first_password_command
from trunkline.wiring.call_components import open_call_components
from trunkline.wiring.models.models import model_installer
from trunkline.wiring.models.server_models import open_server_models
from trunkline.wiring.server_components import ServerComponents
from trunkline.wiring.sip.sip_metrics import SipCollector
from trunkline.wiring.sip.sip_stack import SipStack, open_sip_stack
from trunkline.wiring.storage.database_wait import DatabaseWait, StoppedWhileWaiting
from trunkline.wiring.storage.node_metrics import register_node_metrics
from trunkline.wiring.storage.server_storage import open_server_storage

SWITCH_INTERVAL_S: Final = 0.001
"""How long a thread keeps the interpreter while others wait for it (Python's default is 5 ms): the tick thread needs it
many times a tick."""

PUBLIC_URL_REMEDY: Final = (
    "set [api] public_url to the address that clients use: until then links in responses name the Host that each "
    "client sends, and links in webhooks this one"
)

TRUNK_TABLES: Final = frozenset(("phone_numbers", "phone_number_sources", "trunk_grants", "organizations"))

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
                with suppress(StorageUnavailable):
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
    async with AsyncExitStack() as stack, DatabaseWait(settings, stopped or asyncio.Event()) as wait:
        stack.enter_context(server_lock.lock_data_dir(settings.data_dir))
        stack.callback(log.info, "stopped")
        storage = await open_server_storage(settings, wait, stack)
        wait.has_endpoint = True
        sip = await open_sip_stack(settings, storage, stack)
        health = storage.membership.health
        register_node_metrics(settings.node.effective_name, metadata.version("trunkline"), health, stack)
        models = await open_server_models(settings, storage, load_models, stack)
        calls = await open_call_components(settings, storage, sip, models, stack)
        components = ServerComponents(storage, sip, models, calls)
        server = _server(settings, components)
        await _serve_traffic(server, components, wait, stack)
        log.info("ready", api=server.api_origin, **_ready_fields(server))
        yield server


def _server(settings: Settings, components: ServerComponents) -> Server:
    storage, sip, calls = components.storage, components.sip, components.calls
    return Server(
        settings=settings,
        database=storage.database,
        endpoint=sip.endpoint,
        engine=calls.deps.engine,
        calls=calls.service,
        webhook_sender=calls.http.webhook_sender,
        sources=sip.trunks.sources,
        certificate_reloader=CertificateReloader(sip.endpoint),
        api_certificate=ApiCertificate(settings),
        sip_port=sip.endpoint.sip_port,
        load_shedder=components.models.load_shedder,
        hand_over=storage.membership.hand_over,
    )


async def _serve_traffic(
    server: Server, components: ServerComponents, wait: DatabaseWait, stack: AsyncExitStack
) -> None:
    """Open the API and the control socket, register the trunks, accept calls, take part in the work of all nodes, and
    run the background tasks, until `stack` is closed."""
    storage, sip, calls = components.storage, components.sip, components.calls
    workers = data_workers(server.settings, components)
    feeds = connect_live_feeds(server, components, workers.disk)
    installer = model_installer(server.settings, components.models.catalogue, lambda: calls.service.active_call_count)
    stack.push_async_callback(installer.close)
    services = api_services(server, components, feeds, workers, installer)
    await storage.installing_sounds
    wait.has_api = True
    await _open_api(server, services, stack)
    await _open_control_socket(server, services, components, stack)
    _register_metrics(sip, workers.quota_accounting, stack)
    await sip.trunks.start()
    wait.end()
    server.update_accepting()
    storage.database.on_change = partial(_on_change, components, workers)
    storage.database.on_reconnect = calls.service.on_outage_over
    _report_to_nodes(components, feeds)
    start_tasks(server, stack, background_tasks(server, components, feeds, workers))


def _register_metrics(sip: SipStack, quota_accounting: QuotaAccounting, stack: AsyncExitStack) -> None:
    """Register the metrics of SIP and of the quotas until `stack` is closed."""
    sip_metrics = SipCollector(sip.endpoint.sip_capture, sip.trunks.provisioner.statuses)
    sip_metrics.register()
    stack.callback(sip_metrics.unregister)
    quota_accounting.register()
    stack.callback(quota_accounting.unregister)


def _report_to_nodes(components: ServerComponents, feeds: LiveFeeds) -> None:
    """Tell the other nodes of the load of this one, and act when one of them is down."""
    membership, calls = components.storage.membership, components.calls
    membership.report = feeds.node_load
    membership.on_down = partial(_on_nodes_down, calls.service, calls.http.webhook_sender)
    membership.on_load()


def _on_change(components: ServerComponents, workers: DataWorkers, changed: frozenset[str] | None) -> None:
    """Wake what works on rows that another node has changed."""
    calls = components.calls
    if calls.replica is not None:
        calls.replica.on_change(changed)
    if changed is None or changed & TRUNK_TABLES:
        components.sip.trunks.on_number_change()
    if changed is None or "calls" in changed:
        calls.service.start_queued_calls()
    if changed is None or "knowledge_documents" in changed:
        workers.ingester.wake()
    if changed is None or "recording_removals" in changed:
        workers.retention.wake()


async def _on_nodes_down(calls: CallService, webhook_sender: WebhookSender, names: Collection[str]) -> None:
    """Close the calls of nodes that are down, and send the webhooks that these had claimed."""
    webhook_sender.wake()
    await calls.recover(names)


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
    server: Server, services: Services, components: ServerComponents, stack: AsyncExitStack
) -> None:
    """Serve the control socket until `stack` is closed."""
    endpoint, trunks = server.endpoint, components.sip.trunks
    context = SipControlContext(
        database=server.database,
        sip_capture=endpoint.sip_capture,
        update_sip_capture=endpoint.update_sip_capture,
        sip_traces=components.calls.sip_traces,
        service=server.calls,
        aliases_of=trunks.sources.aliases_of,
        trunk_status=trunks.provisioner.status,
    )
    handlers = {**SipCommands(context).handlers(), **OperatorCommands(services, trunks.refresh).handlers()}
    await stack.enter_async_context(ControlServer(server.settings.data_dir, handlers).listening())


def _origin(settings: Settings, port: int) -> str:
    host = "127.0.0.1" if settings.api.host in ("0.0.0.0", "::") else settings.api.host
    return f"{'https' if settings.api.https_only else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _ready_fields(server: Server) -> dict[str, object]:
    sip, stats = server.settings.sip, server.endpoint.pump.stats()
    listening = {"sip": f"{bracketed(sip.host)}:{server.sip_port}", "tcp": sip.tcp, "tls": sip.tls_port or False}
    https = {"https": server.settings.api.https_port} if server.settings.api.https_port else {}
    return {**https, **listening, "realtime_audio": stats.realtime, "max_calls": server.settings.limits.max_calls}
