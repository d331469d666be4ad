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
    """The voice of one call: the chosen one until it fails, from then on the fallback, so that the voice changes only
    once."""

    cost_source: CostSource = "wrapped model"

    def __init__(self, primary: TextToSpeech, fallback: TextToSpeech, fallback_voice: str) -> None:
        """`fallback_voice` is one of the voices of `fallback`."""
        self.name = primary.name
        self._primary = primary
        self._fallback = fallback
        self._fallback_voice = fallback_voice
        self._failed_over = False

    def voices(self) -> Sequence[str]:
        """The voices of the chosen synthesizer."""
        return self._primary.voices()

    def language_of(self, voice: str) -> str | None:
        """The chosen synthesizer's answer."""
        return self._primary.language_of(voice)

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """See `TextToSpeech.synthesize`. Raises the fallback's errors."""
        if not self._failed_over:
            try:
                return await self._primary.synthesize(text, settings)
            except ModelError as error:
                self._failed_over = True
                _log.warning("voice.fell_back", voice=settings.voice, to=self._fallback_voice, error=error.message)
        return await self._fallback.synthesize(text, replace(settings, voice=self._fallback_voice))
