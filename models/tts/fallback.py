"""Failover of a call's voice: from the chosen synthesizer to a local one, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from config.errors import ModelError
from models.protocols import (
    CostSource,
    SynthesizedSpeech,
    TextToSpeech,
    VoiceSettings,
)

_log = structlog.get_logger()


class FallbackTextToSpeech:
    """The voice of one call: the chosen one until it fails, from then on the other, so that it changes only once."""

    cost_source: CostSource = "wrapped model"

    def __init__(self, first: TextToSpeech, other: TextToSpeech, other_voice: str) -> None:
        """`other_voice` is one of the voices of `other`."""
        self.name = first.name
        self._first = first
        self._other = other
        self._other_voice = other_voice
        self._fell = False

    def voices(self) -> Sequence[str]:
        """Those of the first."""
        return self._first.voices()

    def language_of(self, voice: str) -> str | None:
        """What the first says of it."""
        return self._first.language_of(voice)

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """See `TextToSpeech.synthesize`. Raises what the other one raises."""
        if not self._fell:
            try:
                return await self._first.synthesize(text, settings)
            except ModelError as error:
                self._fell = True
                _log.warning("voice.fell_back", voice=settings.voice, to=self._other_voice, error=error.message)
        return await self._other.synthesize(text, replace(settings, voice=self._other_voice))
