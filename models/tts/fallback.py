"""Failover of a call's voice: from the chosen synthesizer to the next one of its chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from config.errors import ModelError
from models.errors import failure_reason
from models.protocols import (
    CostSource,
    SynthesizedSpeech,
    TextToSpeech,
    VoiceSettings,
)
from models.runtime import request_context
from models.runtime.request_context import ModelFallback

_log = structlog.get_logger()


class FallbackTextToSpeech:
    """The voice of one call: the chosen one until it fails, from then on the next one of `fallbacks`, so that a voice
    that has failed is not heard again."""

    cost_source: CostSource = "wrapped model"

    def __init__(self, primary: TextToSpeech, fallbacks: Sequence[tuple[TextToSpeech, str]]) -> None:
        """`fallbacks`: synthesizers, each with one of its voices."""
        self.name = primary.name
        self._primary = primary
        self._fallbacks = tuple(fallbacks)
        self._failed = 0
        """How many have failed: the primary one, and fallbacks."""

    def voices(self) -> Sequence[str]:
        """The voices of the chosen synthesizer."""
        return self._primary.voices()

    def language_of(self, voice: str) -> str | None:
        """The chosen synthesizer's answer."""
        return self._primary.language_of(voice)

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """See `TextToSpeech.synthesize`. Raises the last fallback's errors."""
        chain = ((self._primary, settings.voice), *self._fallbacks)
        while True:
            place = self._failed
            synthesizer, voice = chain[place]
            try:
                return await synthesizer.synthesize(text, replace(settings, voice=voice))
            except ModelError as error:
                if place + 1 == len(chain):
                    raise
                if place == self._failed:  # else another sentence has found it out
                    self._failed += 1
                    to = chain[place + 1][1]
                    _log.warning("voice.fell_back", voice=voice, to=to, error=error.message)
                    request_context.current().on_fallback(ModelFallback("tts", voice, to, failure_reason(error)))
