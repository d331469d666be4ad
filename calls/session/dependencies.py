"""What every call needs of the house."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calls.admission.number_routing import SourceAliases, no_aliases
from calls.call_record.sip_trace import CallSipTraces
from calls.knowledge.search import KnowledgeSearch
from calls.post_call.finalizer import CallFinalizer
from calls.session.background_audio import BackgroundSounds
from calls.tools.http_tool import ToolHttpAccess
from media.engine.engine import AudioEngine
from media.recording import RecordingWriter
from models.loading.catalogue import Catalogue
from storage.database.database import Database


@dataclass(frozen=True)
class CallDependencies:
    """After `rtp_timeout_s` without any packet a call has lost its caller. Without `backgrounds` calls have nothing
    under them. A call that we make rings for `ring_timeout_s`. Without `sip_traces` nobody keeps
    what is said over SIP. `aliases_of` says what a source is called in the database.
    Without `knowledge` documents are searched by their words alone."""

    database: Database
    engine: AudioEngine
    recordings: RecordingWriter
    models: Catalogue
    finalizer: CallFinalizer
    data_dir: Path
    tool_http: ToolHttpAccess
    rtp_timeout_s: float = 30.0
    background_sounds: BackgroundSounds | None = None
    ring_timeout_s: float = 45.0
    sip_traces: CallSipTraces | None = None
    aliases_of: SourceAliases = no_aliases
    knowledge_search: KnowledgeSearch | None = None
