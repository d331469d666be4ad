"""Turn detection and barge-in: a pure state machine that is given times and probabilities and reads no clock.

Two clocks meet here, both in ms of CLOCK_MONOTONIC. `now_ms` of a tick is the present; the time of a piece of sound
is when it arrived on the wire, which is earlier by what the jitter buffer holds. Silence is counted from the arrival
of the last speech to the present, so a deep jitter buffer does not delay the answer.
"""

from __future__ import annotations

from media.turns.constants import (
    DECAY_MS,
    DOUBT_MS,
    EARLY_ANSWER_MS,
    EPSILON_MS,
    LATE_WORDS_MS,
    LOUD_DIP_MS,
    ONSET_KNOWN_MS,
    ONSET_LIMIT_MS,
    PAUSE_LIMIT_MS,
    QUIET_END_MS,
    QUIET_SURE_MS,
    RELEASE_BELOW,
    REOPEN_SPEECH_MS,
    STILL_SPEECH,
    WORDS_GRACE_MS,
)
from media.turns.events import (
    AskEndOfTurn,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    Speculate,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDropped,
    TurnDropReason,
    TurnEnded,
    TurnEndReason,
    TurnEvent,
)
from media.turns.settings import TurnSettings
from media.turns.state import CALLER_SPEAKING, AgentSpeech, CallerSpeech, EndOfTurnQueries, TurnSilence, TurnState


class TurnDetector:
    """Detects the turns of one call.

    Its inputs, in the order of time: `on_vad_window` with each judged window of the caller's sound, then `on_tick`
    every 20 ms, and `on_end_of_turn`, `on_transcript` and `set_uninterruptible` when they happen. Each returns the
    events that follow from it. `lead_ms` is how long after a decision the first sound that answers it leaves; endings
    are decided by so much earlier, at the tick whose next send is the first at or after the deadline. `ask_ahead_ms` is
    how long the end-of-turn model takes: it is asked by so much earlier still, and its verdict waits for the deadline.
    """

    def __init__(self, settings: TurnSettings, lead_ms: float = 0.0, ask_ahead_ms: float = 0.0) -> None:
        chosen = settings.resolved()
        self._delay = float(chosen.turn_endpoint_delay or 0)
        self._min_turn = float(chosen.min_turn_duration or 0)
        self._min_interruption = float(chosen.min_interruption_duration or 0)
        self._fallback = max(float(chosen.fallback_silence_ms or 0), self._delay)
        self._speculative = chosen.speculative_silence_ms
        self._eot_threshold = chosen.ultravad_eot_threshold
        self.activation = max(float(chosen.frame_activation_threshold or 0), 0.02)
        """Probability at and above which a window is speech."""
        self._release = max(self.activation - RELEASE_BELOW, 0.01)
        self._lead = lead_ms
        self._ask_ahead = ask_ahead_ms
        self._events: list[TurnEvent] = []
        self._now = float("-inf")
        self._state = TurnState.IDLE
        self._agent = AgentSpeech(float(chosen.post_speech_cooldown or 0))
        self._judged, self._p = float("-inf"), 0.0  # the last window that was judged: its end, its probability
        self._dip = 0.0  # how long the probability has been under the release threshold
        self._paused_at = 0.0
        self._speech = CallerSpeech(float("-inf"), float("-inf"), float("-inf"))
        self._silence = TurnSilence()
        self._queries = EndOfTurnQueries()

    @property
    def state(self) -> TurnState:
        """The state of turn detection."""
        return self._state

    @property
    def idle(self) -> bool:
        """True if no speech is open: nothing can happen but a start of speech or of the agent."""
        return self._state is TurnState.IDLE

    @property
    def caller_speaking(self) -> bool:
        """True if the caller speaks at this moment."""
        return self._state in CALLER_SPEAKING

    def on_vad_window(
        self,
        now_ms: float,
        p: float,
        span_ms: float,
        audible: bool,
        quiet_ms: float = 0.0,
        onset_ms: float | None = None,
        loud: bool = False,
    ) -> tuple[TurnEvent, ...]:
        """A window of the caller's sound that ends at `now_ms` and lasts `span_ms`: `p` is the probability of
        speech in it, `quiet_ms` how long the sound before its end has been far below the level of speech (0 where
        noise hides that), `onset_ms` how long before its end the sound began to stand out, if that is known; `loud`
        says that its end is as loud as the speech and well above the noise."""
        self._set_time(now_ms, audible)
        self._judged, self._p = now_ms, p
        if p >= self._release:
            self._dip = 0.0
        else:
            self._dip += span_ms
        if p >= self.activation:
            self._on_voiced_window(now_ms, span_ms, quiet_ms, onset_ms)
        elif p < self._release and self.caller_speaking and (not loud or self._dip > LOUD_DIP_MS):
            self._speech_stopped(now_ms - max(self._dip, quiet_ms), by_energy=False)
        return self._take()

    def on_tick(
        self, now_ms: float, audible: bool, arrived_ms: float | None = None, quiet_ms: float = 0.0
    ) -> tuple[TurnEvent, ...]:
        """Let the timers run at the present. `arrived_ms` is when the newest sound arrived, `quiet_ms` the quiet at its
        end: this follows the end of speech more closely than the windows do."""
        self._set_time(now_ms, audible)
        if arrived_ms is not None:
            self._follow_levels(arrived_ms, quiet_ms)
        self._timers(arrived_ms, quiet_ms)
        return self._take()

    def on_end_of_turn(self, now_ms: float, p: float | None, asked_ms: float) -> tuple[TurnEvent, ...]:
        """The end-of-turn model's answer to the `AskEndOfTurn` of `asked_ms`; `None` when it has nothing to judge by.
        It counts in the silence in which it was asked: now, or at `turnEndpointDelay` if that is to come."""
        self._now = max(self._now, now_ms)
        self._queries.on_answer(self._now, p, asked_ms)
        if self._state is TurnState.SILENCE and self._silence.announced and not self._silence.sound_unjudged:
            self._try_end_by_model()
        return self._take()

    def on_transcript(self, now_ms: float, backchannel: bool = False) -> tuple[TurnEvent, ...]:
        """The recognizer has words for the speech that is open. `backchannel`: so far backchannels alone ("mm-hmm"),
        which take no turn when they are spoken over the agent, and take back the words before them."""
        self._now = max(self._now, now_ms)
        speech = self._speech
        if self._state is TurnState.IDLE:
            return ()
        if not speech.guarded:
            speech.confirmed = True
            if self._state in (TurnState.PAUSED, TurnState.PAUSED_SILENCE):
                self._barge_in()
        elif backchannel:
            speech.backchannel, speech.tentative_since = True, None
        elif speech.tentative_since is None:
            speech.tentative_since = self._now
        return self._take()

    def set_uninterruptible(self, on: bool) -> tuple[TurnEvent, ...]:
        """Set whether the agent's speech cannot be interrupted (`firstMessageUninterruptible`)."""
        self._agent.uninterruptible = on
        if on and self._state in (TurnState.PAUSED, TurnState.PAUSED_SILENCE):
            self._resume_playout()
        return self._take()

    def _set_time(self, now: float, audible: bool) -> None:
        self._now = max(self._now, now)
        change = self._agent.update(self._now, audible)
        if change is not None:
            self._emit(change)

    def _on_voiced_window(self, now: float, span: float, quiet: float, onset: float | None) -> None:
        """A window that holds speech, which reaches to `now - quiet`."""
        until = now - quiet
        if self._state is TurnState.IDLE:
            known = onset is not None and onset <= ONSET_KNOWN_MS
            began = now - (min(onset, span + ONSET_LIMIT_MS) if known and onset is not None else span)
            if quiet < span or now - self._speech.end > DECAY_MS:
                self._open(max(began, self._speech.end), max(until, began))
            return
        if not self.caller_speaking:
            if until <= self._speech.end + EPSILON_MS and now - self._speech.end <= DECAY_MS:
                return  # the model's memory of what we know to be over
            self._speech_resumed(max(now - span, self._speech.end))
            until = max(until, now - span)
        self._speech.end = max(self._speech.end, until)

    def _follow_levels(self, heard: float, quiet: float) -> None:
        """Move the end of open speech along with the sound between two windows; end it when it is quiet enough."""
        if not self.caller_speaking:
            return
        if quiet >= (QUIET_END_MS if self._p < STILL_SPEECH else QUIET_SURE_MS):
            self._speech_stopped(heard - quiet, by_energy=True)
        else:
            self._speech.end = max(self._speech.end, heard - quiet)

    def _open(self, began: float, until: float) -> None:
        reopens = self._agent.reopens_turn(began)
        guarded = not reopens and self._agent.is_guarded(began)
        self._speech = CallerSpeech(began, began, until, guarded, reopens, pause_at=self._min_interruption)
        self._state = TurnState.GUARDED if guarded else TurnState.SPEECH
        self._emit(SpeechStarted(self._now, began, reopens))

    def _speech_resumed(self, began: float) -> None:
        """Speech again within an open turn."""
        if self._silence.announced or self._silence.speculated:
            self._emit(SpeechResumed(self._now))
        self._silence = TurnSilence()
        self._speech.segment = began
        match self._state:
            case TurnState.SILENCE:
                self._state = TurnState.SPEECH
            case TurnState.GUARDED_SILENCE:
                self._state = TurnState.GUARDED
            case TurnState.PAUSED_SILENCE:
                self._state = TurnState.PAUSED
            case _:
                raise AssertionError(self._state)

    def _speech_stopped(self, ended: float, *, by_energy: bool) -> None:
        """Speech stops; it may go on before the turn is ended."""
        self._speech.end = max(ended, self._speech.segment)
        self._speech.spoken_ms += self._speech.end - self._speech.segment
        self._silence = TurnSilence(by_energy)
        self._queries.new_silence()
        match self._state:
            case TurnState.SPEECH:
                self._state = TurnState.SILENCE
            case TurnState.GUARDED:
                self._state = TurnState.GUARDED_SILENCE
            case TurnState.PAUSED:
                self._state = TurnState.PAUSED_SILENCE
            case _:
                raise AssertionError(self._state)

    def _timers(self, heard: float | None, quiet: float) -> None:
        match self._state:
            case TurnState.IDLE:
                pass
            case TurnState.SPEECH:
                if self._agent.interruptible and self._outlasts_agent():
                    self._on_overlap()
            case TurnState.SILENCE:
                self._silence.sound_unjudged = self._follow_doubt(heard, quiet)
                if not self._silence.sound_unjudged:
                    self._in_silence()
            case TurnState.GUARDED | TurnState.GUARDED_SILENCE:
                self._while_guarded()
            case TurnState.PAUSED | TurnState.PAUSED_SILENCE:
                self._while_paused()

    def _follow_doubt(self, heard: float | None, quiet: float) -> bool:
        """Follow sound after an end of speech that the level alone told; returns True while voice activity detection is
        to judge that sound before the turn ends."""
        if not self._silence.by_energy or heard is None or heard - quiet <= self._speech.end + 2 * EPSILON_MS:
            return False
        if self._silence.sound_since is None:
            self._silence.sound_since = heard
        return self._judged < self._silence.sound_since + DOUBT_MS and heard < self._silence.sound_since + 2 * DOUBT_MS

    def _in_silence(self) -> None:
        """The caller's turn, in silence: end or drop it, speculate, ask."""
        over = self._lasted(self._delay, self._lead)
        if over and not self._silence.announced:
            self._silence.announced = True
            self._emit(SpeechStopped(self._now, self._speech.end))
        if not self._speech.barged_in and self._speech.spoken_ms < self._min_turn:
            if over:
                self._drop("short")
        elif not (over and self._end_if_complete()):
            self._prepare()

    def _end_if_complete(self) -> bool:
        """The silence has lasted for `turnEndpointDelay`: end the turn, unless the end-of-turn model wants to wait;
        returns whether it has ended."""
        if self._eot_threshold is None:
            self._end("delay")
        elif not self._try_end_by_model() and self._lasted(self._fallback, self._lead):
            self._end("fallback")
        return self._state is TurnState.IDLE

    def _try_end_by_model(self) -> bool:
        verdict = self._queries.probability
        if verdict is None or self._eot_threshold is None or verdict < self._eot_threshold:
            return False
        self._end("model", verdict)
        return True

    def _prepare(self) -> None:
        """Begin what comes before the end of the turn: speculation, once in a silence, and the next query."""
        if self._speculative is not None and not self._silence.speculated and self._lasted(self._speculative):
            self._silence.speculated = True
            self._emit(Speculate(self._now))
        if self._eot_threshold is None or not self._lasted(self._delay, self._lead + self._ask_ahead):
            return
        self._queries.expire(self._now)
        if self._queries.is_due(self._now):
            self._queries.on_asked(self._now)
            self._emit(AskEndOfTurn(self._now))

    def _outlasts_agent(self) -> bool:
        """True if the caller, whose turn it is, speaks on although the agent has become audible: at once for speech
        that began before the agent's."""
        speech = self._speech
        if speech.segment <= self._agent.started:
            return True
        least = min(self._min_interruption, REOPEN_SPEECH_MS) if speech.reopens else self._min_interruption
        return speech.end - speech.segment >= least

    def _while_guarded(self) -> None:
        """Speech that does not count yet: it may interrupt, outlast what guards it, or be dropped."""
        talking = self._state is TurnState.GUARDED
        if self._agent.audible:
            if self._agent.interruptible and self._speech.resumed and self._speech.has_confirmed_words(self._now):
                self._barge_in()
                return
            if talking and self._agent.interruptible and self._speech_ms() >= self._speech.pause_at:
                self._on_overlap()
        elif self._speech.end >= self._agent.cooldown_until or self._is_early_reply():
            self._state = TurnState.SPEECH if talking else TurnState.SILENCE
            self._speech.guarded = False
            return
        if self._state is TurnState.GUARDED_SILENCE:
            hold = max(LATE_WORDS_MS if self._speech.resumed else 0, self._delay)
            if self._lasted(hold) and not self._speech.has_tentative_words(self._now):
                self._drop(self._guard_reason())

    def _is_early_reply(self) -> bool:
        """True for words over the last moment of the agent's speech, which then ended: they answer it."""
        speech = self._speech
        heard = speech.resumed and (speech.tentative_since is not None or speech.backchannel)
        return heard and self._agent.stopped - speech.end <= EARLY_ANSWER_MS

    def _guard_reason(self) -> TurnDropReason:
        if self._agent.uninterruptible:
            return "protected"
        if not (self._speech.resumed or self._agent.audible):
            return "cooldown"
        return "backchannel" if self._speech.backchannel else "no_words"

    def _while_paused(self) -> None:
        """Playout waits for words. It goes on without them: after 2 s, and when the speech ended."""
        speech, audible = self._speech, self._agent.audible
        ended = self._state is TurnState.PAUSED_SILENCE and self._lasted(WORDS_GRACE_MS)
        late = self._now - self._paused_at >= PAUSE_LIMIT_MS - EPSILON_MS
        if audible and speech.has_confirmed_words(self._now):
            self._barge_in()
        elif late or not audible or (ended and not speech.has_tentative_words(self._now)):
            self._resume_playout()

    def _on_overlap(self) -> None:
        """The caller has spoken over the agent for long enough."""
        if self._speech.has_confirmed_words(self._now):
            self._barge_in()
            return
        self._state = TurnState.PAUSED
        self._paused_at = self._now
        self._emit(PlayoutPaused(self._now))

    def _barge_in(self) -> None:
        self._state = TurnState.SPEECH if self.caller_speaking else TurnState.SILENCE
        self._agent.interrupted = self._agent.audible
        self._speech.barged_in = True
        self._emit(BargeIn(self._now, self._speech.start, self._speech.reopens))

    def _resume_playout(self) -> None:
        """Playout goes on. Speech that goes on as well has had its pause; new speech after it may pause again."""
        talking = self._state is TurnState.PAUSED
        self._state = TurnState.GUARDED if talking else TurnState.GUARDED_SILENCE
        self._speech.resumed = True
        self._speech.pause_at = float("inf") if talking else self._speech.spoken_ms + self._min_interruption
        self._emit(PlayoutResumed(self._now))

    def _end(self, reason: TurnEndReason, probability: float | None = None) -> None:
        self._state = TurnState.IDLE
        self._agent.on_turn_ended(self._now)
        self._emit(TurnEnded(self._now, self._speech.start, self._speech.end, reason, probability))

    def _drop(self, reason: TurnDropReason) -> None:
        self._state = TurnState.IDLE
        self._emit(TurnDropped(self._now, reason))

    def _speech_ms(self) -> float:
        """Speech of this turn so far, pauses left out."""
        return self._speech.spoken_ms + (self._speech.end - self._speech.segment if self.caller_speaking else 0.0)

    def _lasted(self, ms: float, lead: float = 0.0) -> bool:
        """True if the silence, as it will be in `lead` ms, is at least this long."""
        return self._now + lead - self._speech.end >= ms - EPSILON_MS

    def _emit(self, event: TurnEvent) -> None:
        self._events.append(event)

    def _take(self) -> tuple[TurnEvent, ...]:
        if not self._events:
            return ()
        events = tuple(self._events)
        self._events.clear()
        return events
