"""Adds remote models to the catalogue, each with a local fallback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from config.errors import StartupError
from models.llm.fallback import FallbackLanguageModel, flatten_fallbacks
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
from models.stt.two_pass import TwoPassSpeechToText
from models.tts.cache import CachingTextToSpeech, SpeechCache

AUTO: Final = "auto"
PROVIDER: Final = "openai"
_BREAKER_MARGIN_S: Final = 0.1
"""Seconds beyond the remote model's own timeout, so that its circuit breaker counts the failure."""


def select_remote(remotes: Sequence[RemoteModel], kind: RemoteKind, setting: str) -> RemoteModel | None:
    """The remote model that a setting selects: by name; with `auto` the one that was added first. None: a local
    model."""
    of_kind = [remote for remote in remotes if remote.kind == kind]
    return next((remote for remote in of_kind if setting in (AUTO, remote.name)), None)


def add_remote_models(
    local: Catalogue,
    remotes: Sequence[RemoteModel],
    http: HttpClient,
    *,
    stt_second: str = AUTO,
    llm: str = AUTO,
    tts: str = AUTO,
    embedding: str = AUTO,
    cache: SpeechCache | None = None,
    outcomes: RemoteOutcomes | None = None,
    requests: int = DEFAULT_LIMIT,
) -> Catalogue:
    """The catalogue with remote models by the settings `[models] llm tts stt_second embedding`: agents can choose all
    language models and voices, and the selected one of each kind is the default. `outcomes` gets how each request
    ended; `requests`: those under way at once, of each model. Raises `StartupError` if two models have one name."""
    if not remotes:
        return local
    local_names = {info.name for info in local.language_models()}
    if duplicate := next((remote.name for remote in remotes if remote.name in local_names), None):
        raise StartupError(
            f"a remote and a local model are both called {duplicate}: run `trunkline models remote remove {duplicate}`"
        )
    default_llm, stt_model, tts_model = (
        select_remote(remotes, "llm", llm),
        select_remote(remotes, "stt", stt_second),
        select_remote(remotes, "tts", tts),
    )
    clients = {remote.name: RemoteModelClient(remote, http, outcomes, requests) for remote in remotes}
    fallbacks = _local_fallbacks(local)
    llms: dict[LanguageModelInfo, LanguageModel] = {
        _info(remote, remote is default_llm): _language_model(clients[remote.name], fallbacks)
        for remote in remotes
        if remote.kind == "llm"
    }
    tts_models = sorted(
        (remote for remote in remotes if remote.kind == "tts"), key=lambda remote: remote is not tts_model
    )
    cache = cache or SpeechCache()
    voices: list[TextToSpeech] = [
        CachingTextToSpeech(RemoteTextToSpeech(clients[remote.name]), cache) for remote in tts_models
    ]
    embedding_model = select_remote(remotes, "embedding", embedding)
    embeddings = RemoteEmbeddings(clients[embedding_model.name]) if embedding_model else None
    second_pass = _second_pass(clients[stt_model.name]) if stt_model else None
    return local.with_remote(RemoteModels(llms, voices, tts_model is not None, second_pass, embeddings))


def _local_fallbacks(local: Catalogue) -> list[LanguageModel]:
    """The fallbacks of a remote language model: the local default and the rule-based responder, in one chain, so that
    each continues a partial response in its own way."""
    names = dict.fromkeys((local.llm(None).name, responder.NAME))
    models = {info.name: local.llm(info.id) for info in local.language_models()}
    return flatten_fallbacks(models[name] for name in names if name in models)


def _language_model(client: RemoteModelClient, fallbacks: Sequence[LanguageModel]) -> LanguageModel:
    return FallbackLanguageModel(client.model.name, [RemoteLanguageModel(client), *fallbacks])


def _info(remote: RemoteModel, is_default: bool) -> LanguageModelInfo:
    return LanguageModelInfo(language_model_id(remote.name), remote.name, PROVIDER, remote.context_length, is_default)


def _second_pass(client: RemoteModelClient) -> Callable[[SpeechToText], SpeechToText]:
    transcriber = RemoteTranscriber(client)
    limit_s = client.model.timeouts.total_s + _BREAKER_MARGIN_S

    def with_second_pass(stt_model: SpeechToText) -> SpeechToText:
        return TwoPassSpeechToText(
            stt_model.streaming if isinstance(stt_model, TwoPassSpeechToText) else stt_model, transcriber, limit_s
        )

    return with_second_pass
