"""What the API needs of the rest of the program."""

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
    """Handed to `create_app`. All callables run on the event loop and return at once.

    `readiness` names the parts of the server, each with None when it is ready, else with the reason why not.
    `why_calls_rejected` says why further calls are turned away or wait at the moment; None when none are.
    `phone_numbers_changed` is called after a phone number was created, changed or deleted: trunks are to be read anew.
    `check_call_capacity` runs in the transaction that stores an outbound call, on the database's thread, and raises
    `TooMany` or `Unavailable` when there is no place for it; `call_queued` is called after that transaction. `hangup`
    ends a live call and waits until its end is stored; False when it is not live. `sip_messages` gives the SIP messages
    of a call that lives or has just ended, None of others. Without `knowledge` documents are searched by their words
    alone. Without `disk` nobody asks whether there is room. `documents_waiting` is called after knowledge documents
    were uploaded or deleted, also those of a deleted agent. `calls_removed` is called after calls were removed: their
    recordings' files are to go. `languages_changed` is called after an agent's languageHint was set. `webhooks_waiting`
    is called after a webhook was put into the outbox to be sent at once.
    """

    settings: Settings
    database: Database
    secrets: Secrets
    catalogue: Catalogue
    readiness: Callable[[], Mapping[str, str | None]]
    live_calls: Callable[[], int]
    why_calls_rejected: Callable[[], str | None]
    trunk_status: Callable[[PhoneNumber], TrunkStatus]
    phone_numbers_changed: Callable[[], None]
    webhooks_waiting: Callable[[], None]
    documents_waiting: Callable[[], None]
    calls_removed: Callable[[], None]
    languages_changed: Callable[[], None]
    check_call_capacity: Callable[[sa.Connection, Organization], None]
    call_queued: Callable[[], None]
    hangup: Callable[[str], Awaitable[bool]]
    sip_messages: Callable[[str], Awaitable[SipTrace | None]]
    json_cache: JsonCache = field(default_factory=JsonCache)
    knowledge: KnowledgeSearch | None = None
    disk: DiskSpace | None = None
