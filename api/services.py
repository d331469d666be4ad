"""The parts of the server that the API uses: database, secrets, and callables for calls, trunks and workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import sqlalchemy as sa

from api.http.json_cache import JsonCache
from api.schemas.call_replay import CallReplay, SettingsSource
from calls.admission.refused_invites import RefusedInvite
from calls.chat.chat_session import ChatReply
from calls.http_egress.client import HttpEgressClient
from calls.http_egress.concurrency import HttpEgressConcurrency
from calls.knowledge.search import KnowledgeSearch
from calls.live.capacity import CallCapacity, Capacity
from calls.live.events import LiveEvents
from calls.live.live_call import LiveDetails
from calls.live.node_reachability import NodeReachability
from calls.live.server_state import ServerState
from calls.session.call_listener import CallListener
from calls.web_call.web_call import WebConnection
from calls.web_call.web_calls import NewWebCall
from config.secrets import Secrets
from config.settings import Settings
from media.turn_taking.settings import TurnSettings
from models.installation.installer import ModelInstaller
from models.loading.catalogue import LanguageModelInfo, RecognizerInfo, VoiceInfo
from models.loading.language_gaps import LanguageGap
from models.remote.outcomes import RemoteOutcomes
from sipcore.security.unknown_sources import UnknownSource
from sipcore.trunks.trunk import TrunkStatus
from storage.accounts.organizations import Organization
from storage.agents.agents import Agent
from storage.agents.remote_models import RemoteModelVersion
from storage.calls.calls import Call, TranscriptItem
from storage.calls.sip_traces import SipTrace
from storage.calls.transfers import Transfer, TransferOrder
from storage.database.database import Database
from storage.database.disk_space import DiskSpace
from storage.nodes.nodes import Node
from storage.phone_numbers.phone_numbers import PhoneNumber
from storage.recording_store.recording_files import RecordingFiles


class ModelLists(Protocol):
    """The models that calls use: a `models.loading.catalogue.Catalogue`, or lists of a running server's."""

    def voices(self) -> Sequence[VoiceInfo]:
        """All voices."""

    def language_models(self) -> Sequence[LanguageModelInfo]:
        """All language models."""

    def speech_recognizers(self) -> Sequence[RecognizerInfo]:
        """All speech recognizers."""


@dataclass(frozen=True)
class ReplayOrder:
    """A recorded call that is to be replayed with the turn-taking settings that it had, `before`, and with others,
    `after`. `timeline`: its stored turns. `language`: that of its speech recognition, a BCP 47 tag."""

    organization_id: str
    call_id: str
    recording: Path
    timeline: Sequence[Mapping[str, Any]]
    language: str | None
    first_message_uninterruptible: bool
    settings_from: SettingsSource
    before: TurnSettings
    after: TurnSettings


@dataclass(frozen=True)
class NodeIdentity:
    """This server among several. `secret`: what all of them share; None: they pass nothing on to each other."""

    name: str
    instance: str
    secret: bytes | None


@dataclass(frozen=True)
class Services:
    """The argument of `create_app`. All callables run on the event loop and return at once, unless their comment says
    otherwise."""

    settings: Settings
    database: Database
    secrets: Secrets
    catalogue: ModelLists
    readiness: Callable[[], Mapping[str, str | None]]
    """The problems of the server's parts by name: None for a part that is ready."""
    live_calls: Callable[[], int]
    call_rejection_reason: Callable[[], str | None]
    """Returns why further calls are rejected or wait at the moment; None if they are not."""
    trunk_status: Callable[[PhoneNumber], TrunkStatus]
    refused_invites: Callable[[str], Sequence[RefusedInvite]]
    """Returns the last refused INVITEs of an organization, the latest first."""
    unknown_sources: Callable[[], Sequence[UnknownSource]]
    """Returns the addresses whose SIP messages were dropped last, the latest first."""
    phone_numbers_changed: Callable[[], None]
    """Called after a phone number was created, changed or deleted: trunks are read again."""
    webhook_queued: Callable[[], None]
    """Called after a webhook delivery was queued: it is sent at once."""
    documents_changed: Callable[[], None]
    """Called after knowledge documents were uploaded or deleted, also with their agent: they are read or their files
    are removed."""
    calls_deleted: Callable[[], None]
    """Called after calls were deleted: the files of their recordings are removed."""
    languages_changed: Callable[[], None]
    """Called after an agent's languageHint was set: its documents are indexed again."""
    language_gaps: Callable[[str | None, UUID | None], Sequence[LanguageGap]]
    """Returns what the models lack for an agent of this language and this chosen voice; nothing where no models are
    loaded. Any thread."""
    voice_sample: Callable[[UUID], Awaitable[bytes]]
    """Returns a WAV file in which a voice speaks. Raises `NotFound`, and `ModelError` if its model fails."""
    voice_preview: Callable[[UUID, str, float], Awaitable[bytes]]
    """Returns a WAV file in which a voice speaks a text at a speed (1: its own). Raises as `voice_sample`."""
    check_call_capacity: Callable[[sa.Connection, Organization], None]
    """Runs in the transaction that stores an outbound call, on the database's thread. Raises `LimitExceeded` or
    `Unavailable` if there is no capacity for it."""
    call_queued: Callable[[], None]
    """Called after an outbound call was stored: it is placed as soon as the pacing allows."""
    hangup: Callable[[str], Awaitable[bool]]
    """Hangs up a live call and waits until its end is stored; returns False if the call is not live."""
    transfer: Callable[[str, TransferOrder], Awaitable[Transfer]]
    """Begins the transfer of a live call and returns it as stored, before the target is called. Raises `Invalid` that
    names `target` for an unknown one, `Conflict` if the call is not in progress or a transfer of it is under way,
    `LimitExceeded` or `Unavailable` without capacity for the second leg."""
    set_held: Callable[[str, bool], Awaitable[None]]
    """Puts the customer of a live call on hold, or resumes the call. Idempotent. Raises `Conflict` if the call is not
    in progress."""
    whisper: Callable[[str, str, str], None]
    """Gives the agent of a live call a note, by the call's id, the text and its author. Raises `Conflict` if the call
    is not in progress with the agent."""
    listen: Callable[[str], CallListener]
    """Listens in to a live call. Raises `Conflict` if the call is not in progress."""
    start_web_call: Callable[[NewWebCall], None]
    """Called after a test call was stored: it waits for its browser."""
    offer_takeover: Callable[[str, str], str]
    """Returns a ticket by which a person takes over a live call from its agent; by the call's id and the person's name.
    Raises `Conflict` if the call is not in progress with the agent."""
    connect_web_call: Callable[[str, str], Awaitable[WebConnection]]
    """Connects a browser with the test call of this id, or with the call that it takes over, by its ticket. Raises
    `Forbidden`, `Conflict` or `Unavailable`."""
    open_chat: Callable[[Call, Agent], Awaitable[Sequence[TranscriptItem]]]
    """Runs a chat that was stored; returns the transcript once the agent, if it speaks first, has spoken."""
    send_chat_message: Callable[[str, str, int | None], Awaitable[ChatReply]]
    """Sends a message to the chat of this id, in place of an earlier turn of the user if its number is given; returns
    the agent's answer. Raises `Conflict` while another is answered and after the end, `Invalid` for an unknown turn,
    `Unavailable` if the answer takes too long."""
    sip_trace: Callable[[str], Awaitable[SipTrace | None]]
    """Returns the SIP messages of a call that is live or has just ended; None for other calls."""
    replay: Callable[[ReplayOrder], Awaitable[CallReplay]]
    """Replays a call in a process of its own, which a cancellation ends. Raises `Conflict` for a recording that cannot
    be replayed, `LimitExceeded` while another call of the organization is replayed, `Unavailable` while one of another
    organization is, and if it takes too long."""
    http_client: HttpEgressClient
    """Fetches the files of URLs in requests."""
    tool_trials: HttpEgressConcurrency = field(default_factory=HttpEgressConcurrency)
    """The concurrency of tools that are tried outside of calls, which take no slot of calls."""
    events: LiveEvents = field(default_factory=LiveEvents)
    """The events that clients follow."""
    model_events: LiveEvents = field(default_factory=LiveEvents)
    """The changes of models, which belong to no organization."""
    remote_outcomes: RemoteOutcomes = field(default_factory=RemoteOutcomes)
    """The last request to each remote model."""
    loaded_remote_models: Collection[RemoteModelVersion] = frozenset()
    """The remote models that the server has loaded."""
    probe_remote_model: Callable[[str], Awaitable[str]] | None = None
    """Sends a test request to the remote model of a name; returns a line with the response and its time. Raises
    `ModelError`, and `NotFound`. None for commands."""
    model_installer: ModelInstaller | None = None
    """None for commands."""
    live_call: Callable[[str], LiveDetails | None] = lambda _: None
    """Returns what is known of a live call; None for any other. Any thread."""
    live_calls_of: Callable[[str], Mapping[str, LiveDetails]] = lambda _: {}
    """Returns what is known of the live calls of an organization that this server has, by id."""
    capacity: Callable[[sa.Connection, str], Capacity] = lambda *_: Capacity(CallCapacity(0, 0, 0), ServerState())
    """Returns the capacity of an organization. In its transaction, on the database's thread."""
    node: NodeIdentity | None = None
    """None: the only server of its database."""
    nodes: Callable[[sa.Connection], Sequence[Node]] = lambda _: ()
    """Returns the servers of the database, by name. In a transaction, on the database's thread."""
    node_reachability: NodeReachability = field(default_factory=NodeReachability)
    """Which other servers of the database cannot be reached."""
    phone_number_stored: Callable[[PhoneNumber], None] = lambda _: None
    """Called after a phone number was created or changed."""
    phone_number_deleted: Callable[[str, str], None] = lambda *_: None
    """Called with the ids of an organization and its phone number, after the number was deleted."""
    json_cache: JsonCache = field(default_factory=JsonCache)
    knowledge: KnowledgeSearch | None = None
    """None: documents are searched by words alone."""
    disk: DiskSpace | None = None
    """None: free disk space is not checked."""
    recordings: RecordingFiles | None = None
    """None: all recordings are in the data directory."""

    @property
    def recording_files(self) -> RecordingFiles:
        """Where the recordings are."""
        return self.recordings or RecordingFiles(self.settings.data_dir)
