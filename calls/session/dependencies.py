"""The parts of the server that every call session uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from calls.admission.admission_reads import AdmissionReads, Reads
from calls.admission.number_routing import SourceAliases, no_aliases
from calls.call_record.sip_trace import CallSipTraces
from calls.knowledge.search import KnowledgeSearch
from calls.live.live_calls import LiveCalls
from calls.post_call.finalizer import CallFinalizer
from calls.session.background_audio import BackgroundSounds
from calls.session.hold_music import HoldMusic
from calls.tools.http_tool import ToolHttpAccess
from calls.webhooks.live_turns import LiveTurnSender
from media.engine.engine import AudioEngine
from media.recording import RecordingWriter
from models.loading.catalogue import Catalogue
from storage.database.database import Database


@dataclass(frozen=True, kw_only=True)
class CallDependencies:
    """`rtp_timeout_s`: time without any RTP packet after which a call ends. `ring_timeout_s`: time for a callee to
    answer. Without `background_sounds` calls have none; without `hold_music` a caller who waits hears silence. Without
    `sip_traces` no SIP messages are stored. `aliases_of` returns the names that a source address has in the database.
    Without `knowledge_search` documents are searched by keywords alone. `webhook_queued` is called after an event was
    put into the outbox; without `live_turns` no `call.turn` is sent. Without `admission_reads` calls read the
    database alone."""

    database: Database
    engine: AudioEngine
    recordings: RecordingWriter
    models: Catalogue
    finalizer: CallFinalizer
    data_dir: Path
    tool_http: ToolHttpAccess
    rtp_timeout_s: float = 30.0
    background_sounds: BackgroundSounds | None = None
    hold_music: HoldMusic | None = None
    ring_timeout_s: float = 45.0
    sip_traces: CallSipTraces | None = None
    aliases_of: SourceAliases = no_aliases
    knowledge_search: KnowledgeSearch | None = None
    webhook_queued: Callable[[], None] = lambda: None
    live_turns: LiveTurnSender | None = None
    live_calls: LiveCalls = field(default_factory=LiveCalls)
    admission_reads: AdmissionReads | None = None

    @property
    def reads(self) -> Reads:
        """What the start of a call is read from."""
        return self.admission_reads or self.database
