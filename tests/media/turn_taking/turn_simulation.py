"""A call's turn taking on a virtual clock."""

from __future__ import annotations

from typing import TypeVar

from media.turn_taking.constants import STABLE_WORDS_MS
from media.turn_taking.events import AskEndOfTurn, TurnEvent
from media.turn_taking.settings import TurnSettings
from media.turn_taking.turn_detector import TurnDetector

Kind = TypeVar("Kind", bound=TurnEvent)
SPAN = 10
SPEECH, SILENCE = 0.9, 0.0
STAND = int(STABLE_WORDS_MS)
NO_MODEL = TurnSettings(ultravad_eot_threshold=None, speculative_silence_ms=None)
NEVER = 10**9


class SimulatedCall:
    """A call in windows of 10 ms. The end-of-turn model answers `eot` to every query, `answers_ms` after it."""

    def __init__(
        self, settings: TurnSettings = NO_MODEL, eot: float | None = None, answers_ms: int = 0, ask_ahead_ms: int = 0
    ) -> None:
        self.turn_detector = TurnDetector(settings, ask_ahead_ms=ask_ahead_ms)
        self.now = 0.0
        self.audible = False
        self.eot = eot
        self.answers_ms = answers_ms
        self.events: list[TurnEvent] = []
        self._asked: list[float] = []

    def take(self, events: tuple[TurnEvent, ...]) -> None:
        for event in events:
            self.events.append(event)
            if isinstance(event, AskEndOfTurn):
                self._asked.append(event.at_ms)
                self._answer()

    def pass_ms(self, ms: int, p: float = SILENCE) -> SimulatedCall:
        for _ in range(ms // SPAN):
            self.now += SPAN
            self._answer()
            self.take(self.turn_detector.on_vad_window(self.now, p, SPAN, self.audible))
            self.take(self.turn_detector.on_tick(self.now, self.audible))
        return self

    def speak(self, ms: int) -> SimulatedCall:
        return self.pass_ms(ms, SPEECH)

    def agent(self, audible: bool) -> SimulatedCall:
        self.audible = audible
        self.take(self.turn_detector.on_tick(self.now, audible))
        return self

    def words(self, *, backchannel: bool = False) -> SimulatedCall:
        self.take(self.turn_detector.on_transcript(self.now, backchannel))
        return self

    def set_uninterruptible(self, on: bool) -> SimulatedCall:
        self.take(self.turn_detector.set_uninterruptible(on))
        return self

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    def at(self, kind: type[TurnEvent]) -> list[float]:
        return [event.at_ms for event in self.events if isinstance(event, kind)]

    def kinds(self) -> list[type[TurnEvent]]:
        return [type(event) for event in self.events]

    def _answer(self) -> None:
        while self._asked and self._asked[0] + self.answers_ms <= self.now:
            self.take(self.turn_detector.on_end_of_turn(self.now, self.eot, self._asked.pop(0)))
