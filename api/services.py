"""What the API needs of the rest of the program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

import sqlalchemy as sa

from api.http.json_cache import JsonCache
from calls.knowledge.search import KnowledgeSearch
from config.secrets import Secrets
from config.settings import Settings
from sipcore.trunks.trunk import NEVER_QUALIFIED, NO_ANSWER_YET, TrunkStatus
from storage.accounts.organizations import Organization
from storage.calls.sip_traces import SipTrace
from storage.database.database import Database
from storage.database.disk_space import DiskSpace
from storage.phone_numbers.phone_numbers import PhoneNumber


class VoiceEntry(Protocol):
    """A voice that agents can have."""

    @property
    def id(self) -> UUID:
        """Always the same for the same voice."""

    @property
    def name(self) -> str:
        """What people call it."""


class LanguageModelEntry(Protocol):
    """A language model that agents can use. `context_length` in tokens, None where there is no such bound."""

    @property
    def id(self) -> UUID:
        """Always the same for the same model."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def provider(self) -> str:
        """What runs it: builtin, llama.cpp or openai."""

    @property
    def context_length(self) -> int | None:
        """In tokens."""

    @property
    def is_default(self) -> bool:
        """Whether agents without a choice get it."""


class Catalogue(Protocol):
    """What agents can choose by id."""

    def voices(self) -> Sequence[VoiceEntry]:
        """In the order of the list."""

    def language_models(self) -> Sequence[LanguageModelEntry]:
        """In the order of the list."""


def status_without_sip(number: PhoneNumber) -> TrunkStatus:
    """What is known of a trunk from its settings alone."""
    if number.source is None:
        return TrunkStatus("unregistered", "the trunk is not set up: sipMode and its fields are missing")
    if number.sip_mode != "ip_allowlist":
        return TrunkStatus("unregistered")
    return TrunkStatus("listening", NO_ANSWER_YET if number.sip_qualify_seconds else NEVER_QUALIFIED)


def _nothing_changed() -> None:
    return None


def _nothing_refused() -> None:
    return None


def _no_calls() -> int:
    return 0


def _always_room(_conn: sa.Connection, _organization: Organization) -> None:
    return None


async def _never_live(_call_id: str) -> bool:
    return False


async def _no_messages(_call_id: str) -> SipTrace | None:
    return None


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
    live_calls: Callable[[], int] = field(default=_no_calls)
    why_calls_rejected: Callable[[], str | None] = field(default=_nothing_refused)
    trunk_status: Callable[[PhoneNumber], TrunkStatus] = field(default=status_without_sip)
    phone_numbers_changed: Callable[[], None] = field(default=_nothing_changed)
    webhooks_waiting: Callable[[], None] = field(default=_nothing_changed)
    documents_waiting: Callable[[], None] = field(default=_nothing_changed)
    calls_removed: Callable[[], None] = field(default=_nothing_changed)
    languages_changed: Callable[[], None] = field(default=_nothing_changed)
    check_call_capacity: Callable[[sa.Connection, Organization], None] = field(default=_always_room)
    call_queued: Callable[[], None] = field(default=_nothing_changed)
    hangup: Callable[[str], Awaitable[bool]] = field(default=_never_live)
    sip_messages: Callable[[str], Awaitable[SipTrace | None]] = field(default=_no_messages)
    json_cache: JsonCache = field(default_factory=JsonCache)
    knowledge: KnowledgeSearch | None = None
    disk: DiskSpace | None = None
