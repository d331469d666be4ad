"""Remote text to speech (`/v1/audio/speech`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Final

import numpy as np

from config.errors import ModelError
from media.audio_port import Samples
from models.errors import RemoteModelError
from models.protocols import CostSource, SynthesizedSpeech, VoiceSettings
from models.remote.client import RemoteModelClient, RequestBody
from models.remote.wav import decode_wav
from models.tts.estimated_word_timing import estimate_word_ends
from models.tts.trimming import trim_silence

MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a sentence, at most: nearly three minutes at 48 kHz."""
_PATH: Final = "/audio/speech"


class RemoteTextToSpeech:
    """See `TextToSpeech`. The voices that the operator configured, named `NAME/voice`."""

    cost_source: CostSource = "remote"

    def __init__(self, client: RemoteModelClient) -> None:
        self.name = client.model.name
        self._client = client
        self._voices = {f"{self.name}/{voice.name}": voice for voice in client.model.voices}

    def voices(self) -> Sequence[str]:
        """The voices in the operator's order."""
        return tuple(self._voices)

    def language_of(self, voice: str) -> str | None:
        """The BCP 47 tag of a voice's language; None for any or unknown."""
        return self._voices[voice].language if voice in self._voices else None

    def voice_version(self, voice: str) -> str:
        """The configuration of the model without its key; see `DiskCacheable`."""
        model = self._client.model
        return repr((model.base_url, model.model, voice, sorted(model.extra.items(), key=repr)))

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """Synthesize one sentence; the API has no `stability`. Raises `ModelError`, also for an unknown voice."""
        if settings.voice not in self._voices:
            raise ModelError(f"{self.name} has no voice {settings.voice}")
        if not any(character.isalnum() for character in text):
            return SynthesizedSpeech(text, np.zeros(0, np.int16), settings.rate)
        model = self._client.model
        request = {
            "model": model.model,
            "input": text,
            "voice": self._voices[settings.voice].name,
            "response_format": "wav",
            "speed": settings.speed,
        }
        body = RequestBody(json.dumps(model.with_extra(request), ensure_ascii=False).encode("utf-8", "replace"))
        content = await self._client.fetch(_PATH, body, max_bytes=MAX_RESPONSE_BYTES)
        return await asyncio.to_thread(self._decode_speech, text, content, settings.rate)

    def _decode_speech(self, text: str, content: bytes, rate: int) -> SynthesizedSpeech:
        samples = self._decode(content, rate)
        samples = samples[trim_silence(samples, rate)]
        if not len(samples):
            raise RemoteModelError("broken", f"{self.name} sends no sound")
        return SynthesizedSpeech(text, samples, rate, estimate_word_ends(text, samples, rate))

    def _decode(self, content: bytes, rate: int) -> Samples:
        try:
            return decode_wav(content, rate)
        except RemoteModelError as error:
            raise RemoteModelError(error.kind, f"{self.name} {error.message}") from error
