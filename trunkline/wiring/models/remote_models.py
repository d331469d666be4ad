"""Remote models: those that the operator has added, read from the database and added to the model catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

from calls import metrics
from calls.http_egress.client import HttpEgressClient
from config.errors import NotFound
from config.secrets import Secrets
from config.settings import Settings
from models.installation.remote_probe import PROBES
from models.loading.catalogue import Catalogue
from models.loading.remote_models import AUTO, RemoteSelection, add_remote_models, select_remote
from models.remote.config import DEFAULT_TIMEOUTS, RemoteModel, RemoteVoice
from models.remote.outcomes import RemoteOutcomes
from models.tts.cache import SpeechCache
from models.tts.disk_cache import SpeechDiskCache
from storage.agents import remote_models
from storage.agents.remote_models import StoredRemoteModel
from storage.database import secret_key
from storage.database.database import Database
from trunkline.organization_admin import open_database
from trunkline.wiring.http_egress import http_egress_client, remote_model_client

OFF: Final = "off"
_TIMEOUT_FIELDS: Final = {
    "connect_s": "connect_s",
    "first_s": "first_word_s",
    "gap_s": "between_words_s",
    "whole_s": "total_s",
}
"""Names of the stored timeouts, and the `RemoteTimeouts` fields that they set."""


async def read_remote_models(database: Database, key: Secrets) -> list[RemoteModel]:
    """Returns the remote models of the database, with their API keys decrypted. Raises `SecretUnreadable`."""
    return [decrypted(stored, key) for stored in await database.read(remote_models.all_of)]


def decrypted(stored: StoredRemoteModel, key: Secrets) -> RemoteModel:
    """Returns the remote model, with its API key decrypted. Raises `SecretUnreadable`."""
    length: dict[str, Any] = {} if stored.context_length is None else {"context_length": stored.context_length}
    return RemoteModel(
        stored.name, stored.kind, stored.base_url, stored.model,
        None if stored.key_encrypted is None else key.decrypt(stored.key_encrypted),
        replace(DEFAULT_TIMEOUTS[stored.kind], **{_TIMEOUT_FIELDS[name]: s for name, s in stored.limits.items()}),
        voices=tuple(RemoteVoice(str(name), language) for name, language in stored.voices),
        extra=stored.extra,
        **length,
    )  # fmt: skip


async def open_and_read_remote_models(settings: Settings) -> list[RemoteModel]:
    """`read_remote_models` for commands, which have no database open. Raises `SecretUnreadable`, `StartupError`."""
    async with open_database(settings) as database:
        return await read_remote_models(database, await secret_key.load(database, settings.secret_key_path))


async def local_model_settings(settings: Settings) -> Settings:
    """`without_remote_models` for commands, which have no database open."""
    chosen = settings.models
    is_default = chosen.stt_second in (AUTO, OFF) and chosen.embedding in (AUTO, OFF)
    if {chosen.stt, chosen.llm, chosen.tts} == {AUTO} and is_default:
        return settings
    return without_remote_models(settings, await open_and_read_remote_models(settings))


async def open_remote_model(settings: Settings, name: str) -> tuple[RemoteModel, HttpEgressClient]:
    """Returns the remote model of this name, and an HTTP client for it, which the caller closes. Raises `NotFound`."""
    model = next((each for each in await open_and_read_remote_models(settings) if each.name == name), None)
    if model is None:
        raise NotFound(f"there is no remote model {name!r}: see `trunkline models remote list`")
    return model, await http_egress_client(settings)


async def probe_remote_model(settings: Settings, database: Database, key: Secrets, name: str) -> str:
    """Sends a test request to a remote model; returns a line with the response and its time. Raises `ModelError`, and
    `NotFound`."""
    model = next((each for each in await read_remote_models(database, key) if each.name == name), None)
    if model is None:
        raise NotFound("Remote model not found")
    client = await http_egress_client(settings)
    try:
        return await PROBES[model.kind](model, client)
    finally:
        await client.close()


def without_remote_models(settings: Settings, remotes: Sequence[RemoteModel]) -> Settings:
    """The settings that the local models are loaded by: `auto` where a setting names a remote model."""
    chosen = settings.models.model_dump()
    changes: dict[str, str] = {remote.kind: AUTO for remote in remotes if chosen[remote.kind] == remote.name}
    if select_remote(remotes, "stt", _second_pass(settings, remotes)):
        changes["stt_second"] = OFF
    if select_remote(remotes, "embedding", settings.models.embedding):
        changes["embedding"] = OFF
    return settings.with_changes({"models": changes})


def _second_pass(settings: Settings, remotes: Sequence[RemoteModel]) -> str:
    """The name of the second-pass recognizer: a remote model that `stt` or `stt_second` names."""
    chosen = settings.models
    is_remote = any(remote.kind == "stt" and remote.name == chosen.stt for remote in remotes)
    return chosen.stt if is_remote else chosen.stt_second


async def with_remote_models(
    local: Catalogue,
    remotes: Sequence[RemoteModel],
    settings: Settings,
    stack: AsyncExitStack,
    disk_cache: SpeechDiskCache | None,
    outcomes: RemoteOutcomes,
) -> Catalogue:
    """Returns the catalogue of the local and the remote models. `disk_cache` caches remote speech; `stack` closes the
    connections; `outcomes` gets how each request ended. Raises `StartupError`."""
    chosen = settings.models
    selection = RemoteSelection(
        llm=chosen.llm,
        llm_fallback=chosen.llm_fallback,
        llm_spread=chosen.llm_spread,
        tts=chosen.tts,
        tts_fallback=chosen.tts_fallback,
        stt_second=_second_pass(settings, remotes),
        stt_fallback=chosen.stt_fallback,
        embedding=chosen.embedding,
        requests=chosen.remote_requests,
    )
    client = await remote_model_client(settings)
    stack.push_async_callback(client.close)
    cache = SpeechCache(on_use=lambda origin: metrics.SPOKEN_PIECES.labels(origin=origin).inc(), disk_cache=disk_cache)
    return add_remote_models(local, remotes, client, selection, cache=cache, outcomes=outcomes)
