"""The background tasks of a server: they run from the end of its start to the beginning of its stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any, Final

import structlog

from calls.knowledge.ingestion import DocumentIngester
from calls.outbound.dial_audit import prune_periodically
from storage.database.sqlite import upgrade_backup
from trunkline.server.data_workers import DataWorkers
from trunkline.server.live_feeds import LiveFeeds
from trunkline.server.server import Server
from trunkline.wiring.server_components import ServerComponents

HOUSEKEEPING_EVERY_S: Final = 2.0
"""Between two runs of `_housekeeping`."""

BackgroundTask = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger()


def background_tasks(
    server: Server, components: ServerComponents, feeds: LiveFeeds, workers: DataWorkers
) -> dict[str, BackgroundTask]:
    """The background tasks, by the names that the log has for them."""
    storage, calls, retention = components.storage, components.calls, workers.retention
    run_alone = storage.membership.run_alone
    prune_audit = partial(prune_periodically, storage.database, timedelta(days=server.settings.audit.keep_days))
    tasks: dict[str, BackgroundTask] = {
        "trunks": components.sip.trunks.provisioner.run,
        "knowledge": partial(run_alone, "knowledge", partial(_ingest, workers.ingester)),
        "knowledge index": partial(run_alone, "knowledge index", calls.indexer.run),
        "retention": partial(run_alone, "retention", retention.run),
        "audit": partial(run_alone, "audit", prune_audit),
        "disk": workers.disk.run,
        "call journal": calls.service.replay_journal_periodically,
        "calls without a row": calls.service.store_rows_periodically,
        "live calls": calls.live_calls.run,
        "capacity": feeds.capacity.run,
        "quotas": workers.quota_accounting.run,
    }
    if storage.node is not None:
        tasks["recording removals"] = retention.recording_remover.run
    if feeds.trunk_statuses is not None:
        tasks["trunk statuses"] = feeds.trunk_statuses.run
    if calls.uploader is not None:
        tasks["recordings"] = calls.uploader.run
    if calls.replica is not None:
        tasks["admission replica"] = calls.replica.run
    return tasks | _server_tasks(server)


def _server_tasks(server: Server) -> dict[str, BackgroundTask]:
    """Those of the server's own parts."""
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


def start_tasks(server: Server, stack: AsyncExitStack, tasks: Mapping[str, BackgroundTask]) -> None:
    """Run the background tasks until `stack` is closed."""
    running = [asyncio.create_task(run_task(server, name, task), name=name) for name, task in tasks.items()]

    async def cancel_all() -> None:
        for task in running:
            task.cancel()
        await asyncio.wait(running)

    stack.push_async_callback(cancel_all)


async def run_task(server: Server, name: str, task: BackgroundTask) -> None:
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


async def _ingest(ingester: DocumentIngester) -> None:
    await ingester.recover()
    await ingester.run()
