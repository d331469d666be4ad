"""Probes of remote models: a test request for each kind of model, with the response and its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Final

import numpy as np

from config.errors import ModelError, StartupError
from media.audio_port import Samples
from models.protocols import ChatMessage, ChatPrompt, TextDelta, VoiceSettings
from models.remote.client import HttpClient, RemoteModelClient
from models.remote.config import RemoteKind, RemoteModel
from models.remote.embeddings import RemoteEmbeddings
from models.remote.language_model import RemoteLanguageModel
from models.remote.speech_to_text import RemoteTranscriber
from models.remote.text_to_speech import RemoteTextToSpeech

SENTENCE: Final = "Good morning, what can I do for you?"
_RATE: Final = 16_000
Probe = Callable[[RemoteModel, HttpClient], Coroutine[Any, Any, str]]
"""Sends a test request; returns a line with the response and its time. Raises `ModelError`."""


async def _language_model(model: RemoteModel, http: HttpClient) -> str:
    prompt = ChatPrompt("probe", "You answer the telephone in one short sentence.", [ChatMessage("user", "Hello?")])
    started, first_ms, text = time.monotonic(), None, ""
    async with aclosing(RemoteLanguageModel(RemoteModelClient(model, http)).respond(prompt)) as outputs:
        async for output in outputs:
            first_ms = _ms_since(started) if first_ms is None else first_ms
            text += output.text if isinstance(output, TextDelta) else f"[{output.name}]"
    times = f"first token after {first_ms} ms, {len(text)} characters after {_ms_since(started)} ms"
    return f"{times}: {' '.join(text.split())}"


async def _speech_to_text(model: RemoteModel, http: HttpClient) -> str:
    speech = await _local_speech()
    started = time.monotonic()
    text = await RemoteTranscriber(RemoteModelClient(model, http)).transcribe([speech], _RATE, "en")
    return f"{len(speech) / _RATE:.1f} s of speech in {_ms_since(started)} ms: {text or 'no words'}"


async def _text_to_speech(model: RemoteModel, http: HttpClient) -> str:
    tts = RemoteTextToSpeech(RemoteModelClient(model, http))
    results = []
    for voice in tts.voices():
        started = time.monotonic()
        speech = await tts.synthesize(SENTENCE, VoiceSettings(voice, 1.0, 0.5, _RATE))
        results.append(f"{voice}: {len(speech.samples) / _RATE:.1f} s of speech in {_ms_since(started)} ms")
    return "; ".join(results)


async def _embedding(model: RemoteModel, http: HttpClient) -> str:
    started = time.monotonic()
    vectors = await RemoteEmbeddings(RemoteModelClient(model, http)).embed(
        [SENTENCE, "The weather is fine."], query=False
    )
    similarity = float(np.dot(vectors[0], vectors[1]))
    return f"2 vectors of {vectors.shape[1]} numbers in {_ms_since(started)} ms, similarity {similarity:.2f}"


async def _local_speech() -> Samples:
    """A sentence by a local voice. Raises `ModelError`."""
    from models.tts.flite.text_to_speech import FliteTextToSpeech

    try:
        flite = await asyncio.to_thread(FliteTextToSpeech)
    except StartupError as error:
        raise ModelError(f"there is no local voice to test it with: {error.message}") from error
    try:
        return (await flite.synthesize(SENTENCE, VoiceSettings("flite/slt", 1.0, 0.5, _RATE))).samples
    finally:
        await asyncio.to_thread(flite.close)


def _ms_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


PROBES: Final[Mapping[RemoteKind, Probe]] = {
    "llm": _language_model,
    "stt": _speech_to_text,
    "tts": _text_to_speech,
    "embedding": _embedding,
}
