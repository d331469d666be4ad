"""The turn detection settings of an agent."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """The turn-taking fields of an agent; times in ms, thresholds 0..1. `None` means the default, except that
    `ultravad_eot_threshold=None` asks no model and `speculative_silence_ms=None` never speculates."""

    turn_endpoint_delay: int | None = 100
    min_turn_duration: int | None = 50
    min_interruption_duration: int | None = 100
    frame_activation_threshold: float | None = 0.35
    post_speech_cooldown: int | None = 400
    ultravad_eot_threshold: float | None = 0.1
    speculative_silence_ms: int | None = 150
    fallback_silence_ms: int | None = 3000

    def resolved(self) -> TurnSettings:
        """The same with every `None` that stands for a default replaced by it."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        chosen = {name: value for name, value in given.items() if value is not None or name in _NULL_HAS_MEANING}
        return TurnSettings(**{**dict.fromkeys(_NULL_HAS_MEANING), **chosen})


_NULL_HAS_MEANING: Final = frozenset({"ultravad_eot_threshold", "speculative_silence_ms"})
