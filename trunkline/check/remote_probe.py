"""Asks a remote model something, to see whether it answers, and how fast."""

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
Trial = Callable[[RemoteModel, HttpClient], Coroutine[Any, Any, str]]


async def _language_model(model: RemoteModel, http: HttpClient) -> str:
    prompt = ChatPrompt("trial", "You answer the telephone in one short sentence.", [ChatMessage("user", "Hello?")])
    began, first_ms, said = time.monotonic(), None, ""
    async with aclosing(RemoteLanguageModel(RemoteModelClient(model, http)).respond(prompt)) as parts:
        async for part in parts:
            first_ms = _ms(began) if first_ms is None else first_ms
            said += part.text if isinstance(part, TextDelta) else f"[{part.name}]"
    return f"first word after {first_ms} ms, {len(said)} characters after {_ms(began)} ms: {' '.join(said.split())}"


async def _speech_to_text(model: RemoteModel, http: HttpClient) -> str:
    sound = await _spoken()
    began = time.monotonic()
    text = await RemoteTranscriber(RemoteModelClient(model, http)).transcribe([sound], _RATE, "en")
    return f"{len(sound) / _RATE:.1f} s of speech in {_ms(began)} ms: {text or 'no words'}"


async def _text_to_speech(model: RemoteModel, http: HttpClient) -> str:
    voices = RemoteTextToSpeech(RemoteModelClient(model, http))
    results = []
    for voice in voices.voices():
        began = time.monotonic()
        speech = await voices.synthesize(SENTENCE, VoiceSettings(voice, 1.0, 0.5, _RATE))
        results.append(f"{voice}: {len(speech.samples) / _RATE:.1f} s of speech in {_ms(began)} ms")
    return "; ".join(results)


async def _embedding(model: RemoteModel, http: HttpClient) -> str:
    began = time.monotonic()
    vectors = await RemoteEmbeddings(RemoteModelClient(model, http)).embed(
        [SENTENCE, "The weather is fine."], query=False
    )
    alike = float(np.dot(vectors[0], vectors[1]))
    return f"2 vectors of {vectors.shape[1]} numbers in {_ms(began)} ms, {alike:.2f} alike"


async def _spoken() -> Samples:
    """A sentence by a voice that is here."""
    from models.tts.flite.text_to_speech import FliteTextToSpeech

    try:
        flite = await asyncio.to_thread(FliteTextToSpeech)
    except StartupError as error:
        raise ModelError(f"there is no voice here to try it with: {error.message}") from error
    try:
        return (await flite.synthesize(SENTENCE, VoiceSettings("flite/slt", 1.0, 0.5, _RATE))).samples
    finally:
        await asyncio.to_thread(flite.close)


def _ms(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


TRIALS: Final[Mapping[RemoteKind, Trial]] = {
    "llm": _language_model,
    "stt": _speech_to_text,
    "tts": _text_to_speech,
    "embedding": _embedding,
}
