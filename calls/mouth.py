"""How the agent speaks in a call."""

from __future__ import annotations

from dataclasses import dataclass

from config.errors import ModelError
from media.playout import Playout
from models.protocols import Speech, TextToSpeech, VoiceSettings


@dataclass(frozen=True)
class Mouth:
    """A voice, and where its sound goes. `language` is a BCP 47 tag or None."""

    voice: TextToSpeech
    settings: VoiceSettings
    playout: Playout
    language: str | None = None

    async def speech(self, sentence: str) -> Speech:
        """The sound of a sentence at the call's rate. Raises `ModelError`."""
        speech = await self.voice.synthesize(sentence, self.settings)
        if speech.rate != self.settings.rate:
            raise ModelError(f"{self.voice.name} spoke at {speech.rate} Hz instead of {self.settings.rate} Hz")
        return speech
