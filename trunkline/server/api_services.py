"""The services of the HTTP API: what its handlers use of a server."""

from __future__ import annotations

from functools import partial

from api.services import Services
from calls.chat.chats import Chats
from calls.web_call.takeovers import Takeovers
from calls.web_call.web_calls import WebCalls
from models.installation.installer import ModelInstaller
from models.loading.language_gaps import language_gaps
from trunkline.replay.replayer import CallReplayer
from trunkline.server.data_workers import DataWorkers
from trunkline.server.live_feeds import LiveFeeds
from trunkline.server.server import Server
from trunkline.wiring.models.remote_models import probe_remote_model, without_remote_models
from trunkline.wiring.server_components import ServerComponents


def api_services(
    server: Server, components: ServerComponents, feeds: LiveFeeds, workers: DataWorkers, installer: ModelInstaller
) -> Services:
    """Returns the services of a server."""
    storage, sip, models, calls = components.storage, components.sip, components.models, components.calls
    settings, database, endpoint, service = server.settings, storage.database, sip.endpoint, calls.service
    web_calls = WebCalls(
        calls.deps, service.transfer_dependencies, service.start, endpoint.pump, endpoint.open_pcm_channel,
    )  # fmt: skip
    takeovers = Takeovers(service, endpoint.pump, endpoint.open_pcm_channel, web_calls.connect)
    chats = Chats(calls.deps, service.start)
    replayer = CallReplayer(without_remote_models(settings, models.remote))
    catalogue, live_calls, numbers = models.catalogue, calls.live_calls, feeds.numbers
    return Services(
        settings=settings, database=database, secrets=storage.secrets, catalogue=catalogue, model_installer=installer,
        loaded_remote_models=models.remote_versions, remote_outcomes=models.outcomes,
        probe_remote_model=partial(probe_remote_model, settings, database, storage.secrets),
        voice_sample=catalogue.voice_sample, voice_preview=catalogue.voice_preview,
        refused_invites=service.refused_invites.of, unknown_sources=endpoint.unknown_sources.latest,
        language_gaps=partial(language_gaps, catalogue),
        readiness=server.readiness, live_calls=lambda: service.active_call_count,
        trunk_status=sip.trunks.provisioner.status, phone_numbers_changed=sip.trunks.on_number_change,
        documents_changed=workers.ingester.wake, languages_changed=calls.indexer.wake,
        calls_deleted=workers.retention.wake, webhook_queued=calls.http.webhook_sender.wake,
        check_call_capacity=service.check_capacity, call_queued=service.start_queued_calls, hangup=service.hangup,
        transfer=service.transfer, set_held=service.set_held,
        listen=service.listen, whisper=service.whisper, sip_trace=calls.sip_traces.messages,
        start_web_call=web_calls.add, connect_web_call=takeovers.connect, offer_takeover=takeovers.offer,
        call_rejection_reason=server.rejection_reason, replay=replayer.replay,
        open_chat=chats.open, send_chat_message=chats.send,
        knowledge=calls.knowledge_search, disk=workers.disk, http_client=calls.http.api_client,
        events=live_calls.events, live_call=live_calls.details, capacity=feeds.capacity.of,
        live_calls_of=live_calls.of_organization,
        node=storage.node, nodes=storage.membership.nodes, node_reachability=feeds.reachability,
        phone_number_stored=numbers.on_stored, phone_number_deleted=numbers.on_deleted,
        recordings=storage.recording_files,
    )  # fmt: skip
