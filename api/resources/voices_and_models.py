"""Handlers of `/voices` and `/slm-models`, which agents select by id, and of `/speech-recognizers`, which calls get by
language."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from typing import Annotated, Final, Literal
from uuid import UUID

import structlog
from aiohttp import web
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from api.http.range_requests import range_response
from api.resources.links import LINK_DESCRIPTION, signed_link
from api.routing.route import CheckedRequest, FileResponse, PageResponse, RequestContext, Route, ViewPage
from api.schemas.base import UUID_PATTERN, IdView, Paging, Query, View
from api.schemas.transcripts import LinkQuery
from config.errors import ModelError, NotFound, Unavailable
from config.signed_links import voice_sample_path
from models.loading.catalogue import LanguageModelInfo, RecognizerInfo, VoiceInfo
from models.loading.voice_samples import MAX_SAMPLE_S, MAX_TEXT

_log = structlog.get_logger()
_VOICE_FIELDS: Final = ("name", "language", "engine", "quality", "sample_rate")
_MODEL_FIELDS: Final = (
    "name", "provider", "context_length", "is_default", "prompt_tokens_per_second", "tokens_per_second"
)  # fmt: skip
_RECOGNIZER_FIELDS: Final = ("name", "engine", "languages", "streaming", "is_default", "real_time_factor")

DEFAULT_TEXT: Final = "Hello, how can I help you?"
_SPEED: Final = re.compile(r"[0-9]{1,3}([.][0-9]{1,20})?")

Measured = Annotated[float, Field(ge=0)]


def _parse_speed(value: object) -> object:
    """A query parameter as a number."""
    if isinstance(value, str):
        if _SPEED.fullmatch(value) is None:
            raise PydanticCustomError("speed", "Must be a number, as 1.2")
        return float(value)
    return value


class Voice(View):
    """A voice. `language`: its BCP 47 tag; `engine`: what synthesizes it, `openai` on another machine; `quality`: as
    its publisher calls it; `sampleRate`: its own, in Hz, before it is resampled for a call. `sampleUrl` opens a
    short WAV file in the voice's language without an API key, for 7 to 8 days. Null: unknown."""

    id: IdView
    name: str
    language: str | None
    engine: str
    quality: str | None
    sample_rate: int | None
    sample_url: str

    @classmethod
    def of(cls, entry: VoiceInfo, sample_url: str) -> Voice:
        """Returns the view of a voice of the catalogue."""
        fields = {name: getattr(entry, name) for name in _VOICE_FIELDS}
        return cls.model_validate({"id": str(entry.id), "sample_url": sample_url, **fields})


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
    found = context.services.catalogue.voices()
    shown = found[context.query.offset : context.query.offset + context.query.limit]
    return ViewPage(
        [Voice.of(each, signed_link(context, voice_sample_path(str(each.id)))) for each in shown], len(found)
    )


async def synthesize_sample(request: CheckedRequest[None, LinkQuery]) -> bytes:
    """Returns the WAV file of the voice in the path. Raises `NotFound`, and `Unavailable` if the voice fails."""
    if UUID_PATTERN.fullmatch(request.item) is None:
        raise NotFound("Voice not found")
    return await _spoken(request.item, request.services.voice_sample(UUID(request.item)))


async def _spoken(voice: str, speech: Awaitable[bytes]) -> bytes:
    """Returns the speech. Raises `Unavailable` if the voice fails."""
    try:
        return await speech
    except ModelError as error:  # its text may name files and hosts
        _log.warning("voice.sample_failed", voice=voice, error=error.message)
        raise Unavailable("The voice cannot speak now. Please try again later.", SAMPLE_RETRY_AFTER_S) from error


class PreviewQuery(Query):
    """Query parameters of the preview of a voice."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)] = Field(
        DEFAULT_TEXT, description=f"What it says, at most {MAX_TEXT} characters"
    )
    speed: Annotated[float, Field(ge=0.6, le=1.5), BeforeValidator(_parse_speed)] = Field(
        1.0, description="Speed of speech; 1 is the voice's own"
    )


async def synthesize_preview(request: CheckedRequest[None, PreviewQuery]) -> bytes:
    """Returns the WAV file in which the voice in the path speaks the text. Raises as `synthesize_sample`."""
    if UUID_PATTERN.fullmatch(request.item) is None:
        raise NotFound("Voice not found")
    query = request.query
    return await _spoken(request.item, request.services.voice_preview(UUID(request.item), query.text, query.speed))


def voice_preview(context: RequestContext[None, PreviewQuery]) -> web.Response:
    """GET /voices/{id}/preview"""
    return web.Response(body=context.prepared, content_type="audio/wav")


def voice_sample(context: RequestContext[None, LinkQuery]) -> web.Response:
    """GET /voices/{id}/sample"""
    return range_response(context.prepared, context.request, "audio/wav")


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


SAMPLE_RETRY_AFTER_S: Final = 10
"""Retry-After, in seconds, if a voice fails."""
ROUTES = (
    Route(
        method="GET",
        path="/voices",
        name="listVoices",
        role="viewer",
        tag="Models",
        summary="List voices",
        handler=voices,
        query=Paging,
        response=PageResponse(Voice),
    ),
    Route(
        method="GET",
        path="/voices/{id}/sample",
        name="getVoiceSample",
        role="viewer",
        tag="Models",
        summary="Get a spoken sample of a voice",
        description=f"{LINK_DESCRIPTION} It is synthesized when it is first requested. 503: the voice's model fails.",
        prepare=synthesize_sample,
        handler=voice_sample,
        query=LinkQuery,
        item="Voice",
        access="link",
        response=FileResponse("audio/wav"),
        errors=(503,),
    ),
    Route(
        method="GET",
        path="/voices/{id}/preview",
        name="previewVoice",
        role="viewer",
        tag="Models",
        summary="Hear a text in a voice",
        description=f"A mono 16-bit WAV file of at most {MAX_SAMPLE_S} s. Previews wait for each other, so that calls "
        "keep most of the synthesizer. 503: the voice's model fails, or too many wait.",
        prepare=synthesize_preview,
        handler=voice_preview,
        query=PreviewQuery,
        item="Voice",
        response=FileResponse("audio/wav", ranges=False),
    ),
    Route(
        method="GET",
        path="/slm-models",
        name="listLanguageModels",
        role="viewer",
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
        role="viewer",
        tag="Models",
        summary="List speech recognizers",
        description="Calls get one by the languageHint of their agent.",
        handler=speech_recognizers,
        query=Paging,
        response=PageResponse(SpeechRecognizer),
    ),
)
