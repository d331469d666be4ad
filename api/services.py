"""The services of the rest of the program that the API uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from api.http.json_cache import JsonCache
from calls.knowledge.search import KnowledgeSearch
from config.secrets import Secrets
from config.settings import Settings
from models.loading.catalogue import Catalogue
from sipcore.trunks.trunk import TrunkStatus
from storage.accounts.organizations import Organization
from storage.calls.sip_traces import SipTrace
from storage.database.database import Database
from storage.database.disk_space import DiskSpace
from storage.phone_numbers.phone_numbers import PhoneNumber


@dataclass(frozen=True)
class Services:
    """Given to `create_app`. All callables run on the event loop and return at once, unless they say otherwise."""

    settings: Settings
    database: Database
    secrets: Secrets
    catalogue: Catalogue
    readiness: Callable[[], Mapping[str, str | None]]
    """The parts of the server by name: None when a part is ready, else why not."""
    live_calls: Callable[[], int]
    why_calls_rejected: Callable[[], str | None]
    """Why further calls are rejected or wait at the moment; None when none are."""
    trunk_status: Callable[[PhoneNumber], TrunkStatus]
    phone_numbers_changed: Callable[[], None]
    """Called after a phone number was created, changed or deleted, so that trunks are read again."""
    webhooks_waiting: Callable[[], None]
    """Called after a webhook was queued to be sent at once."""
    documents_waiting: Callable[[], None]
    """Called after knowledge documents were uploaded or deleted, also with their agent."""
    calls_removed: Callable[[], None]
    """Called after calls were deleted, so that the files of their recordings are removed."""
    languages_changed: Callable[[], None]
    """Called after an agent's languageHint was set."""
    check_call_capacity: Callable[[sa.Connection, Organization], None]
    """Runs in the transaction that stores an outbound call, on the database's thread. Raises `LimitExceeded` or
    `Unavailable` when there is no capacity for it."""
    call_queued: Callable[[], None]
    """Called after that transaction."""
    hangup: Callable[[str], Awaitable[bool]]
    """Ends a live call, and waits until its end is stored; False when the call is not live."""
    sip_messages: Callable[[str], Awaitable[SipTrace | None]]
    """The SIP messages of a call that is live or has just ended; None of others."""
    json_cache: JsonCache = field(default_factory=JsonCache)
    knowledge: KnowledgeSearch | None = None
    """Without it, documents are searched by words alone."""
    disk: DiskSpace | None = None
    """Without it, free disk space is not checked."""
