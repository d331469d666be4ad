"""What every call needs of the house."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calls.admission import SourceNames, only_address
from calls.after_call import AfterCall
from calls.background import Backgrounds
from calls.http_tool import Outside
from calls.knowledge_search import KnowledgeSearch
from calls.sip_trails import SipTrails
from media.engine import Engine
from media.recording import RecordingWriter
from models.catalogue import Catalogue
from storage.database import Database


@dataclass(frozen=True)
class Equipment:
    """After `rtp_timeout_s` without any packet a call has lost its caller. Without `backgrounds` calls have nothing
    under them. A call that we make rings for `ring_timeout_s`. Without `sip_trails` nobody keeps
    what is said over SIP. `names_of` says what a source is called in the database.
    Without `knowledge` documents are searched by their words alone."""

    database: Database
    engine: Engine
    recordings: RecordingWriter
    models: Catalogue
    after_call: AfterCall
    data_dir: Path
    outside: Outside
    rtp_timeout_s: float = 30.0
    backgrounds: Backgrounds | None = None
    ring_timeout_s: float = 45.0
    sip_trails: SipTrails | None = None
    names_of: SourceNames = only_address
    knowledge: KnowledgeSearch | None = None
