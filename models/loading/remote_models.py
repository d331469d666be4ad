"""Remote models join those that are loaded here: each gets a local one behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from config.errors import StartupError
from models.llm.fallback import FallbackLanguageModel, flattened
from models.loading.catalogue import Catalogue, LanguageModelInfo, RemoteModels, language_model_id
from models.protocols import LanguageModel, SpeechToText, TextToSpeech
from models.remote.client import HttpClient, RemoteModelClient
from models.remote.config import RemoteKind, RemoteModel
from models.remote.embeddings import RemoteEmbeddings
from models.remote.language_model import RemoteLanguageModel
from models.remote.speech_to_text import RemoteTranscriber
from models.remote.text_to_speech import RemoteTextToSpeech
from models.rule_based import responder
from models.stt.two_pass import TwoPassSpeechToText
from models.tts.cache import CachingTextToSpeech, SpeechCache

AUTO: Final = "auto"
PROVIDER: Final = "openai"
_GRACE_S: Final = 0.1
"""What a turn waits longer than the remote model's own limit, so that the breaker hears of its failure."""


def choose_remote(remotes: Sequence[RemoteModel], kind: RemoteKind, wanted: str) -> RemoteModel | None:
    """The remote model that a setting means: the one of that name; with `auto` the one that was added first, because
    whoever adds one wants it used. None: one that is here."""
    of_kind = [remote for remote in remotes if remote.kind == kind]
    return next((remote for remote in of_kind if wanted in (AUTO, remote.name)), None)


def add_remote_models(
    here: Catalogue,
    remotes: Sequence[RemoteModel],
    http: HttpClient,
    *,
    stt_second: str = AUTO,
    llm: str = AUTO,
    tts: str = AUTO,
    embedding: str = AUTO,
    cache: SpeechCache | None = None,
) -> Catalogue:
    """The models that are `here`, and the remote ones as the settings `[models] llm tts stt_second embedding` want
    them: all language models and voices can be chosen, one of each kind is what agents get that choose none. Raises
    `StartupError` when two models have one name."""
    if not remotes:
        return here
    taken = {info.name for info in here.language_models()}
    if twice := next((remote.name for remote in remotes if remote.name in taken), None):
        raise StartupError(
            f"a remote model and one that is here are both called {twice}: run `trunkline models remote remove {twice}`"
        )
    default, recognizer, voice = (
        choose_remote(remotes, "llm", llm),
        choose_remote(remotes, "stt", stt_second),
        choose_remote(remotes, "tts", tts),
    )
    spares = _local_fallbacks(here)
    llms: dict[LanguageModelInfo, LanguageModel] = {
        _info(remote, remote is default): _language_model(remote, http, spares)
        for remote in remotes
        if remote.kind == "llm"
    }
    speakers = sorted((remote for remote in remotes if remote.kind == "tts"), key=lambda remote: remote is not voice)
    cache = cache or SpeechCache()
    voices: list[TextToSpeech] = [
        CachingTextToSpeech(RemoteTextToSpeech(RemoteModelClient(remote, http)), cache) for remote in speakers
    ]
    meaning = choose_remote(remotes, "embedding", embedding)
    embeds = RemoteEmbeddings(RemoteModelClient(meaning, http)) if meaning else None
    hears = _second_pass(recognizer, http) if recognizer else None
    return here.with_remote(RemoteModels(llms, voices, voice is not None, hears, embeds))


def _local_fallbacks(here: Catalogue) -> list[LanguageModel]:
    """What answers when a remote model does not: the best that is here, and what needs no weights; one by one, so that
    each is told what was said of an answer as it needs it."""
    names = dict.fromkeys((here.llm(None).name, responder.NAME))
    models = {info.name: here.llm(info.id) for info in here.language_models()}
    return flattened(models[name] for name in names if name in models)


def _language_model(remote: RemoteModel, http: HttpClient, spares: Sequence[LanguageModel]) -> LanguageModel:
    return FallbackLanguageModel(remote.name, [RemoteLanguageModel(RemoteModelClient(remote, http)), *spares])


def _info(remote: RemoteModel, is_default: bool) -> LanguageModelInfo:
    return LanguageModelInfo(language_model_id(remote.name), remote.name, PROVIDER, remote.context_length, is_default)


def _second_pass(remote: RemoteModel, http: HttpClient) -> Callable[[SpeechToText], SpeechToText]:
    transcriber = RemoteTranscriber(RemoteModelClient(remote, http))
    limit_s = remote.timeouts.total_s + _GRACE_S

    def with_second_pass(recognizer: SpeechToText) -> SpeechToText:
        return TwoPassSpeechToText(
            recognizer.streaming if isinstance(recognizer, TwoPassSpeechToText) else recognizer, transcriber, limit_s
        )

    return with_second_pass
