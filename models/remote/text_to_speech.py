"""Text to speech behind `/v1/audio/speech`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Final

import numpy as np

from config.errors import ModelError
from media.audio_port import Samples
from models.errors import RemoteModelError
from models.protocols import Measured, SynthesizedSpeech, VoiceSettings
from models.remote.client import RemoteModelClient, RequestBody
from models.remote.wav import decode_wav
from models.tts.trimming import trim_silence
from models.tts.word_timing import estimated_word_ends

MOST_BYTES: Final = 16 * 1024 * 1024
"""Of a sentence: nearly three minutes at 48 kHz."""
_PATH: Final = "/audio/speech"


class RemoteTextToSpeech:
    """The voices that its operator named: `NAME/voice`."""

    measured: Measured = "on another machine"

    def __init__(self, endpoint: RemoteModelClient) -> None:
        self.name = endpoint.model.name
        self._endpoint = endpoint
        self._voices = {f"{self.name}/{voice.name}": voice for voice in endpoint.model.voices}

    def voices(self) -> Sequence[str]:
        """In the operator's order."""
        return tuple(self._voices)

    def language_of(self, voice: str) -> str | None:
        """The BCP 47 tag of what a voice speaks; None: any, or not known."""
        return self._voices[voice].language if voice in self._voices else None

    def voice_version(self, voice: str) -> str:
        """All that its operator said of the model but the key; see `DiskCacheable`."""
        model = self._endpoint.model
        return repr((model.base_url, model.model, voice, sorted(model.extra.items(), key=repr)))

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """Speak one sentence. The protocol knows no stability. Raises `ModelError`, for an unknown voice too."""
        if settings.voice not in self._voices:
            raise ModelError(f"{self.name} has no voice {settings.voice}")
        if not any(character.isalnum() for character in text):
            return SynthesizedSpeech(text, np.zeros(0, np.int16), settings.rate)
        model = self._endpoint.model
        asked = {
            "model": model.model,
            "input": text,
            "voice": self._voices[settings.voice].name,
            "response_format": "wav",
            "speed": settings.speed,
            **model.extra,
        }
        body = RequestBody(json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace"))
        content = await self._endpoint.fetch(_PATH, body, max_bytes=MOST_BYTES)
        return await asyncio.to_thread(self._speech, text, content, settings.rate)

    def _speech(self, text: str, content: bytes, rate: int) -> SynthesizedSpeech:
        samples = self._sound(content, rate)
        samples = samples[trim_silence(samples, rate)]
        if not len(samples):
            raise RemoteModelError("broken", f"{self.name} sends no sound")
        return SynthesizedSpeech(text, samples, rate, estimated_word_ends(text, samples, rate))

    def _sound(self, content: bytes, rate: int) -> Samples:
        try:
            return decode_wav(content, rate)
        except RemoteModelError as trouble:
            raise RemoteModelError(trouble.kind, f"{self.name} {trouble.message}") from trouble
