"""Invariants of the events of turn taking: `TurnInvariants` gets all of them and raises on a violation."""

from __future__ import annotations

from media.turn_taking.constants import EOT_QUERY_INTERVAL_MS, EOT_QUERY_TIMEOUT_MS, EPSILON_MS, FALSE_INTERRUPTION_MS
from media.turn_taking.events import (
    AgentStarted,
    AgentStopped,
    AskEndOfTurn,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    SpeculativeTurnEnd,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDropped,
    TurnEnded,
    TurnEvent,
)
from media.turn_taking.settings import TurnSettings


class TurnInvariants:
    """The state of a call by its events. `set_uninterruptible`, `words` and `answered` report the inputs."""

    def __init__(self, settings: TurnSettings, lead_ms: float) -> None:
        self._settings = settings.resolved()
        self._lead = lead_ms
        self.open = self.paused = self.audible = False
        self._protected = self._cut = self._ended_once = self._has_words = False
        self._stopped = self._speculated = False
        self._paused_at = self._last = float("-inf")
        self._turn_end = float("-inf")  # where the speech of the last turn ended
        self._query: float | None = None
        self._asked: list[float] = []  # in the present silence
        self._answered_at = float("-inf")  # the last answer in it
        self._yes: set[float] = set()  # what ended or could end the turn by model

    def set_uninterruptible(self, on: bool) -> None:
        self._protected = on

    def words(self) -> None:
        """Any words, also a backchannel."""
        self._has_words = True

    def answered(self, now_ms: float, asked_ms: float, p: float | None) -> None:
        if asked_ms == self._query:
            self._query = None
        if asked_ms in self._asked:
            self._answered_at = now_ms
            threshold = self._settings.ultravad_eot_threshold
            if p is not None and threshold is not None and p >= threshold:
                self._yes.add(p)

    def see(self, event: TurnEvent) -> None:
        assert event.at_ms >= self._last, "events come in the order of time"
        self._last = event.at_ms
        match event:
            case AgentStarted():
                assert not self.audible
                self.audible, self._cut = True, False
            case AgentStopped():
                assert self.audible
                self.audible = False
            case SpeechStarted():
                self._started(event)
            case SpeechStopped() | SpeechResumed() | SpeculativeTurnEnd() | AskEndOfTurn():
                assert self.open, "this belongs to speech that is open"
                self._in_turn(event)
            case PlayoutPaused() | PlayoutResumed() | BargeIn():
                assert self.open
                self._over_agent(event)
            case TurnEnded() | TurnDropped():
                assert self.open and not self.paused, "what plays is not left paused"
                self.open = False
                if isinstance(event, TurnEnded):
                    self._ended(event)

    def talking(self) -> None:
        """The caller speaks: the next silence is a new one."""
        assert not (self._stopped or self._speculated), "SpeechResumed is emitted"
        self._new_silence()

    def tick(self, now_ms: float) -> None:
        """After all events of a tick."""
        assert not self.paused or now_ms - self._paused_at < FALSE_INTERRUPTION_MS, "a pause is over after two seconds"

    def _started(self, event: SpeechStarted) -> None:
        assert not self.open, "one speech after the other"
        assert event.speech_start_ms >= self._turn_end, "turns do not overlap"
        assert self._ended_once or not event.reopens, "there is a turn to go on with"
        self.open, self._has_words = True, False
        self._new_silence()

    def _new_silence(self) -> None:
        self._stopped = self._speculated = False
        self._asked.clear()
        self._yes.clear()
        self._answered_at = float("-inf")

    def _in_turn(self, event: SpeechStopped | SpeechResumed | SpeculativeTurnEnd | AskEndOfTurn) -> None:
        match event:
            case SpeechStopped():
                assert not self._stopped, "once in a silence"
                self._stopped = True
            case SpeculativeTurnEnd():
                assert not self._speculated, "once in a silence"
                assert self._settings.speculative_silence_ms is not None
                self._speculated = True
            case SpeechResumed():
                assert self._stopped or self._speculated, "nothing was said about a silence"
                self._new_silence()
            case AskEndOfTurn(at_ms):
                self._ask(at_ms)

    def _ask(self, at_ms: float) -> None:
        assert self._settings.ultravad_eot_threshold is not None
        if self._query is not None:
            assert at_ms - self._query >= EOT_QUERY_TIMEOUT_MS - EPSILON_MS, "never two queries at once"
        assert at_ms - self._answered_at >= EOT_QUERY_INTERVAL_MS - EPSILON_MS
        self._query = at_ms
        self._asked.append(at_ms)

    def _over_agent(self, event: PlayoutPaused | PlayoutResumed | BargeIn) -> None:
        match event:
            case PlayoutPaused():
                assert self.audible and not self.paused and not self._protected and not self._cut
                self.paused, self._paused_at = True, event.at_ms
            case PlayoutResumed():
                assert self.paused
                self.paused = False
            case BargeIn():
                assert self.audible and not self._protected, "only what is heard and may be interrupted"
                assert not self._cut, "once"
                assert self._has_words, "noise does not interrupt"
                self.paused, self._cut = False, True

    def _ended(self, event: TurnEnded) -> None:
        assert self._turn_end <= event.speech_start_ms <= event.speech_end_ms <= event.at_ms
        delay = self._settings.turn_endpoint_delay or 0
        assert event.at_ms + self._lead - event.speech_end_ms >= delay - EPSILON_MS, "no caller is cut off early"
        if event.reason == "model":
            assert event.probability in self._yes, "the model said so, in this silence"
        else:
            assert event.probability is None
        assert (event.reason == "delay") == (self._settings.ultravad_eot_threshold is None)
        self._turn_end, self._ended_once = event.speech_end_ms, True
