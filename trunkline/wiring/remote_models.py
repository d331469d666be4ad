"""Models on other machines: from the database into the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

from calls import metrics
from calls.egress.client import EgressClient
from config.errors import NotFound
from config.secrets import Secrets
from config.settings import Settings
from models.loading.catalogue import Catalogue
from models.loading.remote_models import AUTO, add_remote_models, choose_remote
from models.remote.config import DEFAULT_TIMEOUTS, RemoteModel, RemoteVoice
from models.tts.cache import SpeechCache
from models.tts.disk_cache import SpeechDiskCache
from storage.agents import remote_models
from storage.agents.remote_models import StoredRemoteModel
from storage.database import key_check
from storage.database.database import Database
from trunkline.admin import open_database
from trunkline.wiring.egress import egress_client

OFF: Final = "off"
_TIMEOUT_FIELDS: Final = {
    "connect_s": "connect_s",
    "first_s": "first_word_s",
    "gap_s": "between_words_s",
    "whole_s": "total_s",
}
"""The stored limits' names, and the fields of `RemoteTimeouts` that they are."""


async def configured(database: Database, key: Secrets) -> list[RemoteModel]:
    """All that the operator has added, ready to be asked. Raises `SecretUnreadable`."""
    return [remote_model(each, key) for each in await database.read(remote_models.all_of)]


def remote_model(stored: StoredRemoteModel, key: Secrets) -> RemoteModel:
    """With its key in clear. Raises `SecretUnreadable`."""
    length: dict[str, Any] = {} if stored.context_length is None else {"context_length": stored.context_length}
    return RemoteModel(
        stored.name, stored.kind, stored.base_url, stored.model,
        None if stored.key_encrypted is None else key.decrypt(stored.key_encrypted),
        replace(DEFAULT_TIMEOUTS[stored.kind], **{_TIMEOUT_FIELDS[name]: s for name, s in stored.limits.items()}),
        voices=tuple(RemoteVoice(str(name), language) for name, language in stored.voices),
        extra=stored.extra,
        **length,
    )  # fmt: skip


async def configured_in(settings: Settings) -> list[RemoteModel]:
    """The same, for commands that have no database open. Raises `SecretUnreadable`, `StartupError`."""
    async with open_database(settings) as database:
        return await configured(database, await key_check.load(database, settings.secret_key_path))


async def without_remote_models(settings: Settings) -> Settings:
    """`without_remote`, for commands that have no database open."""
    wanted = settings.models
    plain = wanted.stt_second in (AUTO, OFF) and wanted.embedding in (AUTO, OFF)
    if {wanted.stt, wanted.llm, wanted.tts} == {AUTO} and plain:
        return settings
    return without_remote(settings, await configured_in(settings))


async def found(settings: Settings, name: str) -> tuple[RemoteModel, EgressClient]:
    """One by its name, and a client to ask it with, to be closed by the caller. Raises `NotFound`."""
    model = next((each for each in await configured_in(settings) if each.name == name), None)
    if model is None:
        raise NotFound(f"there is no remote model {name!r}: see `trunkline models remote list`")
    return model, await egress_client(settings)


def without_remote(settings: Settings, remotes: Sequence[RemoteModel]) -> Settings:
    """What to load here: the best, where a setting names a model that is elsewhere."""
    given = settings.models.model_dump()
    changes: dict[str, str] = {remote.kind: AUTO for remote in remotes if given[remote.kind] == remote.name}
    if choose_remote(remotes, "stt", _second_pass(settings, remotes)):
        changes["stt_second"] = OFF
    if choose_remote(remotes, "embedding", settings.models.embedding):
        changes["embedding"] = OFF
    return settings.with_changes({"models": changes})


def _second_pass(settings: Settings, remotes: Sequence[RemoteModel]) -> str:
    """What hears turns again: a remote model that either setting names."""
    wanted = settings.models
    named = any(remote.kind == "stt" and remote.name == wanted.stt for remote in remotes)
    return wanted.stt if named else wanted.stt_second


async def with_remote(
    here: Catalogue,
    remotes: Sequence[RemoteModel],
    settings: Settings,
    stack: AsyncExitStack,
    speech_files: SpeechDiskCache | None,
) -> Catalogue:
    """The models that are here and those that are elsewhere, whose speech may be kept in `speech_files`; their
    connections end with `stack`. Raises `StartupError`."""
    if not remotes:
        return here
    client = await egress_client(settings)
    stack.push_async_callback(client.close)
    wanted = settings.models
    cache = SpeechCache(on_use=lambda origin: metrics.SPOKEN_PIECES.labels(origin=origin).inc(), files=speech_files)
    second = _second_pass(settings, remotes)
    return add_remote_models(
        here,
        remotes,
        client,
        stt_second=second,
        llm=wanted.llm,
        tts=wanted.tts,
        embedding=wanted.embedding,
        cache=cache,
    )
