"""What holds for turn taking whatever happens, in whatever order."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from media.events import (
    AgentStarted,
    AgentStopped,
    AskEndOfTurn,
    Interrupted,
    Pause,
    Resume,
    Speculate,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDropped,
    TurnEnded,
    TurnEvent,
)
from media.turn_timing import PAUSE_LIMIT_MS
from media.turns import Turns, TurnSettings

TICK = 20
DEEP = settings(max_examples=500, deadline=None)


@dataclass(frozen=True)
class Step:
    """One tick: what the caller's sound is like, whether the agent is audible, and what else comes in."""

    p: float
    quiet_ms: float
    onset_ms: float | None
    jitter_ms: int
    audible: bool
    words: bool
    eot: float | None
    protect: bool | None


def runs(of: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    """Steps that last: real talk does not change every 20 ms."""
    stretch = st.tuples(of, st.integers(1, 40))
    return st.lists(stretch, min_size=1, max_size=25).map(lambda pairs: [step for step, n in pairs for _ in range(n)])


STEPS = runs(
    st.builds(
        Step,
        p=st.sampled_from([0.0, 0.05, 0.19, 0.21, 0.34, 0.36, 0.9, 1.0]),
        quiet_ms=st.sampled_from([0.0, 0.0, 5.0, 30.0, 45.0, 120.0, 5000.0]),
        onset_ms=st.sampled_from([None, 5.0, 90.0, 250.0]),
        jitter_ms=st.sampled_from([0, 20, 60]),
        audible=st.booleans(),
        words=st.booleans(),
        eot=st.sampled_from([None, 0.0, 0.05, 0.2, 1.0]),
        protect=st.sampled_from([None, None, None, True, False]),
    )
)
MS = st.sampled_from([None, 0, 50, 100, 150, 400, 2000])
SETTINGS = st.builds(
    TurnSettings,
    turn_endpoint_delay=st.sampled_from([None, 50, 100, 700, 2000]),
    min_turn_duration=MS,
    min_interruption_duration=MS,
    frame_activation_threshold=st.sampled_from([None, 0.0, 0.1, 0.35, 0.9, 1.0]),
    post_speech_cooldown=MS,
    ultravad_eot_threshold=st.sampled_from([None, 0.0, 0.1, 1.0]),
    speculative_silence_ms=MS,
    fallback_silence_ms=st.sampled_from([None, 0, 500, 10000]),
)


class Run:
    """Plays steps and keeps the events, and at each tick whether playout is paused."""

    def __init__(self, chosen: TurnSettings) -> None:
        self.turns = Turns(chosen, lead_ms=TICK)
        self.now = 10_000.0
        self.events: list[TurnEvent] = []

    def take(self, events: tuple[TurnEvent, ...], eot: float | None) -> None:
        for event in events:
            self.events.append(event)
            if isinstance(event, AskEndOfTurn):
                self.take(self.turns.eot(self.now, eot, event.at_ms), eot)

    def step(self, step: Step) -> None:
        self.now += TICK
        heard = self.now - step.jitter_ms
        if step.protect is not None:
            self.take(self.turns.protect(step.protect), step.eot)
        if step.words:
            self.take(self.turns.words(self.now), step.eot)
        self.take(self.turns.frame(heard, step.p, TICK, step.audible, step.quiet_ms, step.onset_ms), step.eot)
        self.take(self.turns.tick(self.now, step.audible, heard, step.quiet_ms), step.eot)

    def play(self, steps: list[Step]) -> Run:
        for step in steps:
            self.step(step)
        return self

    def leave_silent(self, ms: int) -> Run:
        silence = Step(0.0, 5000.0, None, 0, audible=False, words=False, eot=None, protect=None)
        return self.play([silence] * (ms // TICK))


@DEEP
@given(SETTINGS, STEPS)
def test_events_come_in_the_order_of_time(chosen: TurnSettings, steps: list[Step]) -> None:
    times = [event.at_ms for event in Run(chosen).play(steps).events]
    assert times == sorted(times)


@DEEP
@given(SETTINGS, STEPS)
def test_every_start_of_speech_has_exactly_one_end(chosen: TurnSettings, steps: list[Step]) -> None:
    run = Run(chosen).play(steps).leave_silent(13_000)
    is_open = False
    for event in run.events:
        match event:
            case SpeechStarted():
                assert not is_open
                is_open = True
            case TurnEnded() | TurnDropped():
                assert is_open
                is_open = False
            case SpeechStopped() | SpeechResumed() | Speculate() | AskEndOfTurn() | Pause() | Interrupted() | Resume():
                assert is_open
            case AgentStarted() | AgentStopped():
                pass
    assert not is_open
    assert run.turns.idle


@DEEP
@given(SETTINGS, STEPS)
def test_a_pause_is_over_after_two_seconds(chosen: TurnSettings, steps: list[Step]) -> None:
    run = Run(chosen)
    paused_at: float | None = None
    for step in steps:
        seen = len(run.events)
        run.step(step)
        for event in run.events[seen:]:
            match event:
                case Pause():
                    assert paused_at is None
                    paused_at = event.at_ms
                case Resume():
                    assert paused_at is not None
                    paused_at = None
                case Interrupted():
                    paused_at = None
                case TurnEnded() | TurnDropped():
                    assert paused_at is None
                case _:
                    pass
        assert paused_at is None or run.now - paused_at < PAUSE_LIMIT_MS


@DEEP
@given(SETTINGS, STEPS)
def test_nothing_interrupts_what_is_protected(chosen: TurnSettings, steps: list[Step]) -> None:
    run = Run(chosen)
    protected = False
    for step in steps:
        protected = protected if step.protect is None else step.protect
        seen = len(run.events)
        run.step(step)
        assert not protected or not any(isinstance(event, Pause | Interrupted) for event in run.events[seen:])


@DEEP
@given(SETTINGS, STEPS)
def test_the_times_of_a_turn_are_in_order(chosen: TurnSettings, steps: list[Step]) -> None:
    run = Run(chosen).play(steps)
    last_end = float("-inf")
    for event in run.events:
        if isinstance(event, TurnEnded):
            assert last_end <= event.speech_start_ms <= event.speech_end_ms <= event.at_ms
            last_end = event.speech_end_ms


@DEEP
@given(SETTINGS, STEPS)
def test_an_interruption_stops_an_agent_that_can_be_heard_once(chosen: TurnSettings, steps: list[Step]) -> None:
    audible = cut = False
    for event in Run(chosen).play(steps).events:
        match event:
            case AgentStarted():
                audible, cut = True, False
            case AgentStopped():
                audible = False
            case Interrupted():
                assert audible and not cut
                cut = True
            case Pause():
                assert audible
            case _:
                pass
