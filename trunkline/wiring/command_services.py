"""The API's services for commands, which work on the database whether or not a server runs. What only a running server
can do is a `RuntimeError`: commands ask the server for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn

from api.services import Services
from calls.trunks.provisioning import missing_trunk
from config.secrets import Secrets
from config.settings import Settings
from models.loading.catalogue import LanguageModelInfo, RecognizerInfo, VoiceInfo
from sipcore.trunks.trunk import TrunkStatus
from storage.database.database import Database
from storage.phone_numbers.phone_numbers import PhoneNumber
from trunkline.wiring.http_egress import http_egress_client

NO_SERVER: Final = TrunkStatus("unregistered", "no server runs")


@dataclass(frozen=True)
class KnownModels:
    """The models of a running server."""

    voice_list: Sequence[VoiceInfo] = ()
    language_model_list: Sequence[LanguageModelInfo] = ()

    def voices(self) -> Sequence[VoiceInfo]:
        """All voices."""
        return self.voice_list

    def language_models(self) -> Sequence[LanguageModelInfo]:
        """All language models."""
        return self.language_model_list

    def speech_recognizers(self) -> Sequence[RecognizerInfo]:
        """None: no command chooses one."""
        return ()


@asynccontextmanager
async def command_services(
    settings: Settings,
    database: Database,
    secrets: Secrets,
    *,
    models: KnownModels,
    trunk_statuses: Mapping[str, TrunkStatus] | None,
    on_change: Callable[[str], None],
) -> AsyncIterator[Services]:
    """The services while the block runs. `trunk_statuses`: those of the running server by the number's id, None without
    one. `on_change` gets the control command by which a running server acts on a change."""

    def trunk_status(number: PhoneNumber) -> TrunkStatus:
        if number.source is None:
            return missing_trunk(number)
        return NO_SERVER if trunk_statuses is None else trunk_statuses.get(number.id, TrunkStatus("unregistered"))

    client = await http_egress_client(settings)
    try:
        yield Services(
            settings=settings, database=database, secrets=secrets, catalogue=models, trunk_status=trunk_status,
            language_gaps=lambda _language, _voice: (),
            http_client=client,
            phone_numbers_changed=partial(on_change, "trunks.changed"),
            documents_changed=partial(on_change, "documents.changed"),
            languages_changed=partial(on_change, "languages.changed"),
            readiness=_needs_server, live_calls=_needs_server, call_rejection_reason=_needs_server,
            webhook_queued=_needs_server, calls_deleted=_needs_server, check_call_capacity=_needs_server,
            call_queued=_needs_server, hangup=_needs_server, transfer=_needs_server, set_held=_needs_server,
            listen=_needs_server, whisper=_needs_server, offer_takeover=_needs_server, sip_trace=_needs_server,
            voice_sample=_needs_server, voice_preview=_needs_server, refused_invites=_needs_server,
            unknown_sources=_needs_server,
            start_web_call=_needs_server, connect_web_call=_needs_server, replay=_needs_server,
            open_chat=_needs_server, send_chat_message=_needs_server,
        )  # fmt: skip
    finally:
        await client.close()


def _needs_server(*_: object) -> NoReturn:
    raise RuntimeError("only a running server can do this")
