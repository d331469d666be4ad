"""Adds remote models to the catalogue, each with the models that take over when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from config.errors import StartupError
from models.llm.fallback import FallbackLanguageModel, flatten_fallbacks
from models.llm.replicas import ReplicaOrder
from models.loading.catalogue import Catalogue, LanguageModelInfo, RemoteModels, language_model_id
from models.protocols import LanguageModel, SpeechToText, TextToSpeech
from models.remote.client import HttpClient, RemoteModelClient
from models.remote.config import RemoteKind, RemoteModel
from models.remote.embeddings import RemoteEmbeddings
from models.remote.language_model import RemoteLanguageModel
from models.remote.outcomes import RemoteOutcomes
from models.remote.request_queue import DEFAULT_LIMIT
from models.remote.speech_to_text import RemoteTranscriber
from models.remote.text_to_speech import RemoteTextToSpeech
from models.rule_based import responder
from models.stt.fallback import FallbackTranscriber
from models.stt.two_pass import TwoPassSpeechToText
from models.tts.cache import CachingTextToSpeech, SpeechCache

AUTO: Final = "auto"
PROVIDER: Final = "openai"
_BREAKER_MARGIN_S: Final = 0.1
"""Seconds beyond the remote model's own timeout, so that its circuit breaker counts the failure."""


@dataclass(frozen=True, kw_only=True)
class RemoteSelection:
    """The settings `[models]` of remote models. A `_fallback` names the models that take over, in order, before the
    local ones. `llm_spread`: the remote ones of `llm` and `llm_fallback` are replicas, and each agent begins with its
    own. `requests`: those under way at once, of each model."""

    llm: str = AUTO
    llm_fallback: Sequence[str] = ()
    llm_spread: bool = False
    tts: str = AUTO
    tts_fallback: Sequence[str] = ()
    stt_second: str = AUTO
    stt_fallback: Sequence[str] = ()
    embedding: str = AUTO
    requests: int = DEFAULT_LIMIT


def select_remote(remotes: Sequence[RemoteModel], kind: RemoteKind, setting: str) -> RemoteModel | None:
    """The remote model that a setting selects: by name; with `auto` the one that was added first. None: a local
    model."""
    of_kind = [remote for remote in remotes if remote.kind == kind]
    return next((remote for remote in of_kind if setting in (AUTO, remote.name)), None)


def add_remote_models(
    local: Catalogue,
    remotes: Sequence[RemoteModel],
    http: HttpClient,
    selection: RemoteSelection = RemoteSelection(),
    *,
    cache: SpeechCache | None = None,
    outcomes: RemoteOutcomes | None = None,
) -> Catalogue:
    """The catalogue with remote models: agents can choose all language models and voices, and the selected one of each
    kind is the default. `outcomes` gets how each request ended. Raises `StartupError` if two models have one name, or a
    fallback does not exist."""
    if not remotes:
        _require_known("llm_fallback", selection.llm_fallback, [info.name for info in local.language_models()])
        _require_known("tts_fallback", selection.tts_fallback, ())
        _require_known("stt_fallback", selection.stt_fallback, ())
        return local
    local_names = {info.name for info in local.language_models()}
    if duplicate := next((remote.name for remote in remotes if remote.name in local_names), None):
        raise StartupError(
            f"a remote and a local model are both called {duplicate}: run `trunkline models remote remove {duplicate}`"
        )
    clients = [RemoteModelClient(remote, http, outcomes, selection.requests) for remote in remotes]
    embedding = select_remote(remotes, "embedding", selection.embedding)
    synthesizers, fallbacks = _synthesizers(clients, selection, cache or SpeechCache())
    remote_models = RemoteModels(
        _language_models(local, clients, selection),
        synthesizers,
        select_remote(remotes, "tts", selection.tts) is not None,
        _second_pass(clients, selection),
        RemoteEmbeddings(_named(clients, [embedding.name])[0]) if embedding else None,
        fallbacks,
    )
    return local.with_remote(remote_models)


def _language_models(
    local: Catalogue, clients: Sequence[RemoteModelClient], selection: RemoteSelection
) -> dict[LanguageModelInfo, LanguageModel]:
    """The remote language models, the selected one as the default. Each falls back to those of `llm_fallback`, then to
    the local default and the rule-based responder, in one chain, so that each continues a partial response in its own
    way."""
    remotes = {client.model.name: RemoteLanguageModel(client) for client in clients if client.model.kind == "llm"}
    locals_ = {info.name: local.llm(info.id) for info in local.language_models()}
    _require_known("llm_fallback", selection.llm_fallback, [*remotes, *locals_])
    default = select_remote([client.model for client in clients], "llm", selection.llm)
    names = dict.fromkeys((*selection.llm_fallback, local.llm(None).name, responder.NAME))
    fallbacks = [{**locals_, **remotes}[name] for name in names if name in remotes or name in locals_]
    replicas = {
        *([default.name] if default else ()), *(name for name in selection.llm_fallback if name in remotes)
    }  # fmt: skip
    order = ReplicaOrder(replicas) if selection.llm_spread else None
    return {
        _info(model, remotes[name].context_length, model is default): FallbackLanguageModel(
            name, flatten_fallbacks([remotes[name], *fallbacks]), order if name in replicas else None
        )
        for name, model in {client.model.name: client.model for client in clients}.items()
        if name in remotes
    }


def _info(remote: RemoteModel, context_length: int, is_default: bool) -> LanguageModelInfo:
    return LanguageModelInfo(language_model_id(remote.name), remote.name, PROVIDER, context_length, is_default)


def _synthesizers(
    clients: Sequence[RemoteModelClient], selection: RemoteSelection, cache: SpeechCache
) -> tuple[list[TextToSpeech], list[TextToSpeech]]:
    """The remote synthesizers, the selected one first; and those of `tts_fallback`."""
    voices: dict[str, TextToSpeech] = {
        client.model.name: CachingTextToSpeech(RemoteTextToSpeech(client), cache)
        for client in sorted(clients, key=lambda client: client.model.name != selection.tts)
        if client.model.kind == "tts"
    }
    _require_known("tts_fallback", selection.tts_fallback, voices)
    return list(voices.values()), [voices[name] for name in selection.tts_fallback]


def _second_pass(
    clients: Sequence[RemoteModelClient], selection: RemoteSelection
) -> Callable[[SpeechToText], SpeechToText] | None:
    """Adds the selected remote second pass to a recognizer, with those of `stt_fallback` behind it."""
    names = [client.model.name for client in clients if client.model.kind == "stt"]
    _require_known("stt_fallback", selection.stt_fallback, names)
    selected = select_remote([client.model for client in clients], "stt", selection.stt_second)
    if selected is None:
        return None
    chain = _named(clients, dict.fromkeys((selected.name, *selection.stt_fallback)))
    transcribers = [RemoteTranscriber(client) for client in chain]
    total_s = selected.timeouts.total_s

    def with_second_pass(stt_model: SpeechToText) -> SpeechToText:
        streaming = stt_model.streaming if isinstance(stt_model, TwoPassSpeechToText) else stt_model
        second = FallbackTranscriber(transcribers, streaming.name, total_s)
        return TwoPassSpeechToText(streaming, second, total_s + _BREAKER_MARGIN_S)

    return with_second_pass


def _named(clients: Sequence[RemoteModelClient], names: Iterable[str]) -> list[RemoteModelClient]:
    by_name = {client.model.name: client for client in clients}
    return [by_name[name] for name in names]


def _require_known(setting: str, chosen: Sequence[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in chosen:
        if name not in known:
            there = f"there are: {', '.join(known)}" if known else "there is none"
            raise StartupError(f"[models] {setting} names {name!r}, which is no model for that; {there}")
