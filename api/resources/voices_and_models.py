"""Handlers of `/voices` and `/slm-models`, which agents select by id, and of `/speech-recognizers`, which calls get by
language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from api.routing.route import PageResponse, RequestContext, Route, ViewPage
from api.schemas.base import IdView, Paging, View
from models.loading.catalogue import LanguageModelInfo, RecognizerInfo, VoiceInfo

_VOICE_FIELDS: Final = ("name", "language", "engine", "quality", "sample_rate")
_MODEL_FIELDS: Final = (
    "name", "provider", "context_length", "is_default", "prompt_tokens_per_second", "tokens_per_second"
)  # fmt: skip
_RECOGNIZER_FIELDS: Final = ("name", "engine", "languages", "streaming", "is_default", "real_time_factor")

Measured = Annotated[float, Field(ge=0)]


class Voice(View):
    """A voice. `language`: its BCP 47 tag; `engine`: what synthesizes it, `openai` on another machine; `quality`: as
    its publisher calls it; `sampleRate`: its own, in Hz, before it is resampled for a call. Null: unknown."""

    id: IdView
    name: str
    language: str | None
    engine: str
    quality: str | None
    sample_rate: int | None

    @classmethod
    def of(cls, entry: VoiceInfo) -> Voice:
        """Returns the view of a voice of the catalogue."""
        return cls.model_validate({"id": str(entry.id), **{name: getattr(entry, name) for name in _VOICE_FIELDS}})


class LanguageModel(View):
    """A language model; `contextLength` is in tokens, null if it has no limit. `promptTokensPerSecond` and
    `tokensPerSecond`: how fast this machine read a prompt and generated for one call when the model was loaded; null
    for one that is not loaded, runs on another machine or has no weights."""

    id: IdView
    name: str
    provider: Literal["builtin", "llama.cpp", "openai"]
    context_length: int | None
    is_default: bool
    prompt_tokens_per_second: Measured | None
    tokens_per_second: Measured | None

    @classmethod
    def of(cls, entry: LanguageModelInfo) -> LanguageModel:
        """Returns the view of a model of the catalogue."""
        return cls.model_validate({"id": str(entry.id), **{name: getattr(entry, name) for name in _MODEL_FIELDS}})


class SpeechRecognizer(View):
    """A speech recognizer. `languages`: BCP 47 tags; `*`: all, or unknown. `streaming`: it has words while the caller
    speaks. `isDefault`: it has the calls of agents without a languageHint. `realTimeFactor`: processor seconds that a
    second of audio took here; null: not measured."""

    id: IdView
    name: str
    engine: str
    languages: list[str]
    streaming: bool
    is_default: bool
    real_time_factor: Measured | None

    @classmethod
    def of(cls, entry: RecognizerInfo) -> SpeechRecognizer:
        """Returns the view of a recognizer of the catalogue."""
        fields = {name: getattr(entry, name) for name in _RECOGNIZER_FIELDS}
        return cls.model_validate({"id": str(entry.id), **fields, "languages": list(entry.languages)})


def voices(context: RequestContext[None, Paging]) -> ViewPage:
    """GET /voices"""
    return _page([Voice.of(each) for each in context.services.catalogue.voices()], context.query)


def language_models(context: RequestContext[None, Paging]) -> ViewPage:
    """GET /slm-models"""
    models = [LanguageModel.of(each) for each in context.services.catalogue.language_models()]
    return _page(models, context.query)


def speech_recognizers(context: RequestContext[None, Paging]) -> ViewPage:
    """GET /speech-recognizers"""
    recognizers = context.services.catalogue.speech_recognizers()
    return _page([SpeechRecognizer.of(each) for each in recognizers], context.query)


def _page(views: Sequence[View], paging: Paging) -> ViewPage:
    return ViewPage(list(views[paging.offset : paging.offset + paging.limit]), len(views))


ROUTES = (
    Route(
        method="GET",
        path="/voices",
        name="listVoices",
        tag="Models",
        summary="List voices",
        handler=voices,
        query=Paging,
        response=PageResponse(Voice),
    ),
    Route(
        method="GET",
        path="/slm-models",
        name="listLanguageModels",
        tag="Models",
        summary="List language models",
        handler=language_models,
        query=Paging,
        response=PageResponse(LanguageModel),
    ),
    Route(
        method="GET",
        path="/speech-recognizers",
        name="listSpeechRecognizers",
        tag="Models",
        summary="List speech recognizers",
        description="Calls get one by the languageHint of their agent.",
        handler=speech_recognizers,
        query=Paging,
        response=PageResponse(SpeechRecognizer),
    ),
)
