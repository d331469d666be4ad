"""Turn detection and barge-in: a pure state machine on times and probabilities that reads no clock.

Two clocks meet here, both in ms of CLOCK_MONOTONIC. `now_ms` of a tick is the present; the time of a piece of audio is
its arrival on the wire, which is earlier by the depth of the jitter buffer. Silence is counted from the arrival of the
last speech to the present, so a deep jitter buffer does not delay the response."""

from __future__ import annotations

from media.turn_taking.constants import (
    EARLY_REPLY_MS,
    EPSILON_MS,
    FALSE_INTERRUPTION_MS,
    LATE_WORDS_MS,
    MAX_LOUD_DIP_MS,
    MAX_ONSET_AGE_MS,
    MAX_ONSET_LEAD_MS,
    QUIET_END_MS,
    RELEASE_BELOW,
    REOPEN_MIN_SPEECH_MS,
    SURE_SPEECH,
    SURE_SPEECH_QUIET_MS,
    VAD_CONFIRM_MS,
    VAD_DECAY_MS,
    WORDS_GRACE_MS,
)
from media.turn_taking.events import (
    AskEndOfTurn,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    SpeculativeTurnEnd,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDropped,
    TurnDropReason,
    TurnEnded,
    TurnEndReason,
    TurnEvent,
)
from media.turn_taking.settings import TurnSettings
from media.turn_taking.state import CALLER_SPEAKING, AgentSpeech, CallerSpeech, EndOfTurnQueries, TurnSilence, TurnState


class TurnDetector:
    """Detects the turns of one call.

    Its inputs, in the order of time: `on_vad_window` with each judged window of the caller's audio, then `on_tick`
    every 20 ms, and `on_end_of_turn`, `on_transcript` and `set_uninterruptible` when they happen. Each returns the
    resulting events. `lead_ms` is the time from a decision to the first audio of the response; ends are decided that
    much earlier, at the tick whose next send is the first at or after the deadline. `ask_ahead_ms` is the latency of
    the end-of-turn model: it is queried that much earlier still, and its verdict waits for the deadline."""

    def __init__(self, settings: TurnSettings, lead_ms: float = 0.0, ask_ahead_ms: float = 0.0) -> None:
        resolved = settings.resolved()
        self._delay = float(resolved.turn_endpoint_delay or 0)
        self._min_turn = float(resolved.min_turn_duration or 0)
        self._min_interruption = float(resolved.min_interruption_duration or 0)
        self._fallback = max(float(resolved.fallback_silence_ms or 0), self._delay)
        self._speculative = resolved.speculative_silence_ms
        self._eot_threshold = resolved.ultravad_eot_threshold
        self.activation = max(float(resolved.frame_activation_threshold or 0), 0.02)
        """Probability from which on a window is speech."""
        self._release = max(self.activation - RELEASE_BELOW, 0.01)
        self._lead = lead_ms
        self._ask_ahead = ask_ahead_ms
        self._events: list[TurnEvent] = []
        self._now = float("-inf")
        self._state = TurnState.IDLE
        self._agent = AgentSpeech(float(resolved.post_speech_cooldown or 0))
        self._judged, self._p = float("-inf"), 0.0  # the last judged window: its end, its probability
        self._dip = 0.0  # ms for which the probability has been under the release threshold
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
        """True if no speech is open: the only possible events are a start of the caller's or the agent's speech."""
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
        """A window of the caller's audio that ends at `now_ms` and lasts `span_ms`. `p`: the probability of speech in
        it; `quiet_ms`: time for which the audio before its end has been far below the level of speech (0 where noise
        hides that); `onset_ms`: time before its end at which the sound began to stand out, if known; `loud`: its end is
        as loud as speech and well above the noise."""
        self._set_time(now_ms, audible)
        self._judged, self._p = now_ms, p
        if p >= self._release:
            self._dip = 0.0
        else:
            self._dip += span_ms
        if p >= self.activation:
            self._on_voiced_window(now_ms, span_ms, quiet_ms, onset_ms)
        elif p < self._release and self.caller_speaking and (not loud or self._dip > MAX_LOUD_DIP_MS):
            self._speech_stopped(now_ms - max(self._dip, quiet_ms), by_energy=False)
        return self._take_events()

    def on_tick(
        self, now_ms: float, audible: bool, arrived_ms: float | None = None, quiet_ms: float = 0.0
    ) -> tuple[TurnEvent, ...]:
        """Run the timers at the present. `arrived_ms` is the arrival of the newest audio, `quiet_ms` the quiet at its
        end: this tracks the end of speech more closely than the windows do."""
        self._set_time(now_ms, audible)
        if arrived_ms is not None:
            self._track_levels(arrived_ms, quiet_ms)
        self._run_timers(arrived_ms, quiet_ms)
        return self._take_events()

    def on_end_of_turn(self, now_ms: float, p: float | None, asked_ms: float) -> tuple[TurnEvent, ...]:
        """The end-of-turn model's answer to the `AskEndOfTurn` of `asked_ms`; `None` without input to judge by. It
        counts in the silence of its query: now, or at `turnEndpointDelay` if that is still ahead."""
        self._now = max(self._now, now_ms)
        self._queries.on_answer(self._now, p, asked_ms)
        if self._state is TurnState.SILENCE and self._silence.announced and not self._silence.sound_unconfirmed:
            self._try_end_by_model()
        return self._take_events()

    def on_transcript(self, now_ms: float, backchannel: bool = False) -> tuple[TurnEvent, ...]:
        """The recognizer has words for the open speech. `backchannel`: so far backchannels alone ("mm-hmm"), which take
        no turn over the agent, and retract the words before them."""
        self._now = max(self._now, now_ms)
        speech = self._speech
        if self._state is TurnState.IDLE:
            return ()
        if not speech.unconfirmed:
            speech.words_confirmed = True
            if self._state in (TurnState.PAUSED, TurnState.PAUSED_SILENCE):
                self._barge_in()
        elif backchannel:
            speech.backchannel, speech.tentative_since = True, None
        elif speech.tentative_since is None:
            speech.tentative_since = self._now
        return self._take_events()

    @property
    def is_uninterruptible(self) -> bool:
        """True while the agent's speech cannot be interrupted."""
        return self._agent.uninterruptible

    def set_uninterruptible(self, on: bool) -> tuple[TurnEvent, ...]:
        """Set whether the agent's speech cannot be interrupted (`firstMessageUninterruptible`)."""
        self._agent.uninterruptible = on
        if on and self._state in (TurnState.PAUSED, TurnState.PAUSED_SILENCE):
            self._resume_playout()
        return self._take_events()

    def stop(self, now_ms: float) -> tuple[TurnEvent, ...]:
        """Detection stops: the open turn ends with what was said so far, or is dropped if that takes no turn."""
        self._now = max(self._now, now_ms)
        match self._state:
            case TurnState.IDLE:
                pass
            case TurnState.SPEECH | TurnState.SILENCE:
                if self._speech.barged_in or self._speech_ms() >= self._min_turn:
                    self._end_turn("delay")
                else:
                    self._drop_turn("short")
            case TurnState.UNCONFIRMED_SPEECH | TurnState.UNCONFIRMED_SILENCE:
                self._drop_turn(self._drop_reason())
            case TurnState.PAUSED | TurnState.PAUSED_SILENCE:
                self._resume_playout()
                self._drop_turn(self._drop_reason())
        return self._take_events()

    def _set_time(self, now: float, audible: bool) -> None:
        self._now = max(self._now, now)
        change = self._agent.update(self._now, audible)
        if change is not None:
            self._emit(change)

    def _on_voiced_window(self, now: float, span: float, quiet: float, onset: float | None) -> None:
        """A window with speech up to `now - quiet`."""
        until = now - quiet
        if self._state is TurnState.IDLE:
            known = onset is not None and onset <= MAX_ONSET_AGE_MS
            began = now - (min(onset, span + MAX_ONSET_LEAD_MS) if known and onset is not None else span)
            if quiet < span or now - self._speech.end > VAD_DECAY_MS:
                self._open_turn(max(began, self._speech.end), max(until, began))
            return
        if not self.caller_speaking:
            if until <= self._speech.end + EPSILON_MS and now - self._speech.end <= VAD_DECAY_MS:
                return  # the model's decay after speech that is known to be over
            self._speech_resumed(max(now - span, self._speech.end))
            until = max(until, now - span)
        self._speech.end = max(self._speech.end, until)

    def _track_levels(self, arrived: float, quiet: float) -> None:
        """Extend the end of open speech with the audio between two windows; end the speech when it is quiet enough."""
        if not self.caller_speaking:
            return
        if quiet >= (QUIET_END_MS if self._p < SURE_SPEECH else SURE_SPEECH_QUIET_MS):
            self._speech_stopped(arrived - quiet, by_energy=True)
        else:
            self._speech.end = max(self._speech.end, arrived - quiet)

    def _open_turn(self, began: float, until: float) -> None:
        reopens = self._agent.reopens_turn(began)
        unconfirmed = not reopens and self._agent.needs_confirmation(began)
        self._speech = CallerSpeech(began, began, until, unconfirmed, reopens, pause_after_ms=self._min_interruption)
        self._state = TurnState.UNCONFIRMED_SPEECH if unconfirmed else TurnState.SPEECH
        self._emit(SpeechStarted(self._now, began, reopens))

    def _speech_resumed(self, began: float) -> None:
        """Speech again within an open turn."""
        if self._silence.announced or self._silence.speculated:
            self._emit(SpeechResumed(self._now))
        self._silence = TurnSilence()
        self._speech.segment_start = began
        match self._state:
            case TurnState.SILENCE:
                self._state = TurnState.SPEECH
            case TurnState.UNCONFIRMED_SILENCE:
                self._state = TurnState.UNCONFIRMED_SPEECH
            case TurnState.PAUSED_SILENCE:
                self._state = TurnState.PAUSED
            case _:
                raise AssertionError(self._state)

    def _speech_stopped(self, ended: float, *, by_energy: bool) -> None:
        """Speech stops; it may resume before the turn is ended."""
        self._speech.end = max(ended, self._speech.segment_start)
        self._speech.spoken_ms += self._speech.end - self._speech.segment_start
        self._silence = TurnSilence(by_energy)
        self._queries.new_silence()
        match self._state:
            case TurnState.SPEECH:
                self._state = TurnState.SILENCE
            case TurnState.UNCONFIRMED_SPEECH:
                self._state = TurnState.UNCONFIRMED_SILENCE
            case TurnState.PAUSED:
                self._state = TurnState.PAUSED_SILENCE
            case _:
                raise AssertionError(self._state)

    def _run_timers(self, arrived: float | None, quiet: float) -> None:
        match self._state:
            case TurnState.IDLE:
                pass
            case TurnState.SPEECH:
                if self._agent.interruptible and self._speaks_over_agent():
                    self._on_overlap()
            case TurnState.SILENCE:
                self._silence.sound_unconfirmed = self._track_unconfirmed_sound(arrived, quiet)
                if not self._silence.sound_unconfirmed:
                    self._on_turn_silence()
            case TurnState.UNCONFIRMED_SPEECH | TurnState.UNCONFIRMED_SILENCE:
                self._on_unconfirmed_tick()
            case TurnState.PAUSED | TurnState.PAUSED_SILENCE:
                self._on_paused_tick()

    def _track_unconfirmed_sound(self, arrived: float | None, quiet: float) -> bool:
        """Track sound after an end of speech that was found by the level alone; returns True while the turn must not
        end because voice activity detection has not judged that sound."""
        if not self._silence.by_energy or arrived is None or arrived - quiet <= self._speech.end + 2 * EPSILON_MS:
            return False
        if self._silence.sound_since is None:
            self._silence.sound_since = arrived
        return (
            self._judged < self._silence.sound_since + VAD_CONFIRM_MS
            and arrived < self._silence.sound_since + 2 * VAD_CONFIRM_MS
        )

    def _on_turn_silence(self) -> None:
        """A tick in the silence of the caller's turn: end or drop it, speculate, query the end-of-turn model."""
        over = self._silence_lasted(self._delay, self._lead)
        if over and not self._silence.announced:
            self._silence.announced = True
            self._emit(SpeechStopped(self._now, self._speech.end))
        if not self._speech.barged_in and self._speech.spoken_ms < self._min_turn:
            if over:
                self._drop_turn("short")
        elif not (over and self._end_if_complete()):
            self._speculate_and_query()

    def _end_if_complete(self) -> bool:
        """After `turnEndpointDelay` of silence: end the turn, unless the end-of-turn model wants to wait; returns True
        if it has ended."""
        if self._eot_threshold is None:
            self._end_turn("delay")
        elif not self._try_end_by_model() and self._silence_lasted(self._fallback, self._lead):
            self._end_turn("fallback")
        return self._state is TurnState.IDLE

    def _try_end_by_model(self) -> bool:
        verdict = self._queries.probability
        if verdict is None or self._eot_threshold is None or verdict < self._eot_threshold:
            return False
        self._end_turn("model", verdict)
        return True

    def _speculate_and_query(self) -> None:
        """Before the end of the turn: speculation, once in a silence, and the next query."""
        if self._speculative is not None and not self._silence.speculated and self._silence_lasted(self._speculative):
            self._silence.speculated = True
            self._emit(SpeculativeTurnEnd(self._now))
        if self._eot_threshold is None or not self._silence_lasted(self._delay, self._lead + self._ask_ahead):
            return
        self._queries.expire(self._now)
        if self._queries.is_due(self._now):
            self._queries.on_asked(self._now)
            self._emit(AskEndOfTurn(self._now))

    def _speaks_over_agent(self) -> bool:
        """True if the caller, who has the turn, speaks on although the agent has become audible: at once for speech
        that began before the agent's."""
        speech = self._speech
        if speech.segment_start <= self._agent.started:
            return True
        minimum = min(self._min_interruption, REOPEN_MIN_SPEECH_MS) if speech.reopens else self._min_interruption
        return speech.end - speech.segment_start >= minimum

    def _on_unconfirmed_tick(self) -> None:
        """A tick of speech that does not count yet: it may interrupt; it counts if it goes on after the agent's speech
        and the cooldown; else it is dropped."""
        speaking = self._state is TurnState.UNCONFIRMED_SPEECH
        if self._agent.audible:
            if (
                self._agent.interruptible
                and self._speech.playout_resumed
                and self._speech.has_confirmed_words(self._now)
            ):
                self._barge_in()
                return
            if speaking and self._agent.interruptible and self._speech_ms() >= self._speech.pause_after_ms:
                self._on_overlap()
        elif self._speech.end >= self._agent.cooldown_until or self._is_early_reply():
            self._state = TurnState.SPEECH if speaking else TurnState.SILENCE
            self._speech.unconfirmed = False
            return
        if self._state is TurnState.UNCONFIRMED_SILENCE:
            hold = max(LATE_WORDS_MS if self._speech.playout_resumed else 0, self._delay)
            if self._silence_lasted(hold) and not self._speech.has_tentative_words(self._now):
                self._drop_turn(self._drop_reason())

    def _is_early_reply(self) -> bool:
        """True for words over the end of the agent's speech: they are the reply to it."""
        speech = self._speech
        has_words = speech.playout_resumed and (speech.tentative_since is not None or speech.backchannel)
        return has_words and self._agent.stopped - speech.end <= EARLY_REPLY_MS

    def _drop_reason(self) -> TurnDropReason:
        if self._agent.uninterruptible:
            return "protected"
        if not (self._speech.playout_resumed or self._agent.audible):
            return "cooldown"
        return "backchannel" if self._speech.backchannel else "no_words"

    def _on_paused_tick(self) -> None:
        """A tick of paused playout: words interrupt; without them playout resumes after 2 s, or after the end of the
        speech."""
        speech, audible = self._speech, self._agent.audible
        ended = self._state is TurnState.PAUSED_SILENCE and self._silence_lasted(WORDS_GRACE_MS)
        late = self._now - self._paused_at >= FALSE_INTERRUPTION_MS - EPSILON_MS
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
        """Playout resumes. The same speech does not pause it again; new speech after it may."""
        speaking = self._state is TurnState.PAUSED
        self._state = TurnState.UNCONFIRMED_SPEECH if speaking else TurnState.UNCONFIRMED_SILENCE
        self._speech.playout_resumed = True
        self._speech.pause_after_ms = float("inf") if speaking else self._speech.spoken_ms + self._min_interruption
        self._emit(PlayoutResumed(self._now))

    def _end_turn(self, reason: TurnEndReason, probability: float | None = None) -> None:
        self._state = TurnState.IDLE
        self._agent.on_turn_ended(self._now)
        self._emit(TurnEnded(self._now, self._speech.start, self._speech.end, reason, probability))

    def _drop_turn(self, reason: TurnDropReason) -> None:
        self._state = TurnState.IDLE
        self._emit(TurnDropped(self._now, reason))

    def _speech_ms(self) -> float:
        """Speech of this turn so far, without pauses, ms."""
        return self._speech.spoken_ms + (self._speech.end - self._speech.segment_start if self.caller_speaking else 0.0)

    def _silence_lasted(self, ms: float, lead: float = 0.0) -> bool:
        """True if the silence, as it will be in `lead` ms, is at least this long."""
        return self._now + lead - self._speech.end >= ms - EPSILON_MS

    def _emit(self, event: TurnEvent) -> None:
        self._events.append(event)

    def _take_events(self) -> tuple[TurnEvent, ...]:
        if not self._events:
            return ()
        events = tuple(self._events)
        self._events.clear()
        return events
