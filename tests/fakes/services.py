"""The API's services for tests without calls and SIP: services that a test does not set do nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from api import services
from api.schemas.call_replay import CallReplay
from calls.admission.refused_invites import RefusedInvite
from calls.chat.chat_session import ChatReply
from calls.http_egress.client import HttpEgressClient
from calls.session.call_listener import CallListener
from calls.trunks.provisioning import missing_trunk
from calls.web_call.web_call import WebConnection
from calls.web_call.web_calls import INVALID_TICKET, NewWebCall
from config.errors import Conflict, Forbidden, NotFound
from models.loading.language_gaps import LanguageGap
from sipcore.security.unknown_sources import UnknownSource
from sipcore.trunks.trunk import NEVER_QUALIFIED, NO_ANSWER_YET, TrunkStatus
from storage.accounts.organizations import Organization
from storage.agents.agents import Agent
from storage.calls.calls import Call, TranscriptItem
from storage.calls.sip_traces import SipTrace
from storage.calls.transfers import Transfer, TransferOrder
from storage.phone_numbers.phone_numbers import PhoneNumber, effective_trunk
from tests.fakes.http_client import MusicAtEveryUrl

MUSIC_AT_EVERY_URL: Final = MusicAtEveryUrl()


def status_without_sip(number: PhoneNumber) -> TrunkStatus:
    """The status of a trunk by its settings alone."""
    if number.source is None:
        return missing_trunk(number)
    if effective_trunk(number).sip_mode != "ip_allowlist":
        return TrunkStatus("unregistered")
    return TrunkStatus("listening", NO_ANSWER_YET if number.sip_qualify_seconds else NEVER_QUALIFIED)


def _ignore() -> None:
    return None


def _accept_all() -> None:
    return None


def _no_calls() -> int:
    return 0


def _has_capacity(_conn: sa.Connection, _organization: Organization) -> None:
    return None


async def _never_live(_call_id: str) -> bool:
    return False


async def _mute(_voice: UUID) -> bytes:
    raise NotFound("Voice not found")


async def _mute_text(_voice: UUID, _text: str, _speed: float) -> bytes:
    raise NotFound("Voice not found")


async def _not_in_progress(_call_id: str, _order: TransferOrder) -> Transfer:
    raise Conflict("The call is not in progress")


async def _not_to_be_held(_call_id: str, _on: bool) -> None:
    raise Conflict("The call is not in progress")


def _no_agent(_call_id: str, _text: str, _author: str) -> None:
    raise Conflict("The call is not in progress with the agent")


def _no_takeover(_call_id: str, _name: str) -> str:
    raise Conflict("The call is not in progress with the agent")


def _nobody_to_hear(_call_id: str) -> CallListener:
    raise Conflict("The call is not in progress")


async def _no_web_call(_call_id: str, _ticket: str) -> WebConnection:
    raise Forbidden(INVALID_TICKET)


async def _not_to_be_replayed(_order: services.ReplayOrder) -> CallReplay:
    raise Conflict("The recording cannot be read")


async def _silent_chat(_call: Call, _agent: Agent) -> Sequence[TranscriptItem]:
    return []


async def _chat_answer(_call_id: str, content: str, edit_turn: int | None) -> ChatReply:
    return ChatReply(edit_turn or 1, f"You said: {content}", 5, 9, (), (), ended=False)


async def _no_messages(_call_id: str) -> SipTrace | None:
    return None


def no_german(language: str | None, _voice: UUID | None) -> Sequence[LanguageGap]:
    """German is not recognized."""
    return [LanguageGap("language", "No German")] if language == "de" else []


@dataclass(frozen=True)
class Services(services.Services):
    """`api.services.Services` whose callables do nothing unless a test sets them."""

    http_client: HttpEgressClient = MUSIC_AT_EVERY_URL
    language_gaps: Callable[[str | None, UUID | None], Sequence[LanguageGap]] = no_german
    live_calls: Callable[[], int] = _no_calls
    call_rejection_reason: Callable[[], str | None] = _accept_all
    trunk_status: Callable[[PhoneNumber], TrunkStatus] = status_without_sip
    refused_invites: Callable[[str], Sequence[RefusedInvite]] = lambda _: ()
    unknown_sources: Callable[[], Sequence[UnknownSource]] = lambda: ()
    phone_numbers_changed: Callable[[], None] = _ignore
    webhook_queued: Callable[[], None] = _ignore
    documents_changed: Callable[[], None] = _ignore
    calls_deleted: Callable[[], None] = _ignore
    languages_changed: Callable[[], None] = _ignore
    voice_sample: Callable[[UUID], Awaitable[bytes]] = _mute
    voice_preview: Callable[[UUID, str, float], Awaitable[bytes]] = _mute_text
    check_call_capacity: Callable[[sa.Connection, Organization], None] = _has_capacity
    call_queued: Callable[[], None] = _ignore
    hangup: Callable[[str], Awaitable[bool]] = _never_live
    transfer: Callable[[str, TransferOrder], Awaitable[Transfer]] = _not_in_progress
    set_held: Callable[[str, bool], Awaitable[None]] = _not_to_be_held
    whisper: Callable[[str, str, str], None] = _no_agent
    offer_takeover: Callable[[str, str], str] = _no_takeover
    listen: Callable[[str], CallListener] = _nobody_to_hear
    start_web_call: Callable[[NewWebCall], None] = lambda _: None
    connect_web_call: Callable[[str, str], Awaitable[WebConnection]] = _no_web_call
    open_chat: Callable[[Call, Agent], Awaitable[Sequence[TranscriptItem]]] = _silent_chat
    send_chat_message: Callable[[str, str, int | None], Awaitable[ChatReply]] = _chat_answer
    sip_trace: Callable[[str], Awaitable[SipTrace | None]] = _no_messages
    replay: Callable[[services.ReplayOrder], Awaitable[CallReplay]] = _not_to_be_replayed
