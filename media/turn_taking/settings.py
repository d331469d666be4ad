"""The turn-taking settings of an agent."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

UTTERANCE_SILENCE_MS: Final = 600
"""Silence that ends what a party says to another party."""


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """The turn-taking fields of an agent; times in ms, thresholds 0..1. `None` is the default, except that
    `ultravad_eot_threshold=None` disables the end-of-turn model and `speculative_silence_ms=None` disables
    speculation."""

    turn_endpoint_delay: int | None = 100
    min_turn_duration: int | None = 50
    min_interruption_duration: int | None = 100
    frame_activation_threshold: float | None = 0.35
    post_speech_cooldown: int | None = 400
    ultravad_eot_threshold: float | None = 0.1
    speculative_silence_ms: int | None = 150
    fallback_silence_ms: int | None = 3000

    def resolved(self) -> TurnSettings:
        """The settings with the default in place of every `None` that stands for it."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        explicit = {name: value for name, value in values.items() if value is not None or name in _NULL_HAS_MEANING}
        return TurnSettings(**{**dict.fromkeys(_NULL_HAS_MEANING), **explicit})

    def of_connected_parties(self) -> TurnSettings:
        """The settings for two parties who talk with each other: no response waits for the end of a turn, so silence
        alone ends it, after at least `UTTERANCE_SILENCE_MS`, and a pause inside a sentence or a word does not."""
        delay = max(self.resolved().turn_endpoint_delay or 0, UTTERANCE_SILENCE_MS)
        return replace(self, turn_endpoint_delay=delay, ultravad_eot_threshold=None, speculative_silence_ms=None)


_NULL_HAS_MEANING: Final = frozenset({"ultravad_eot_threshold", "speculative_silence_ms"})
