"""Invariants of turn taking (`TurnInvariants`) in thousands of random calls on a virtual clock: some by hypothesis,
which shrinks a failure, and many at random, which finds longer ones."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from media.turn_taking.events import AskEndOfTurn, BargeIn, SpeechStarted, TurnDropped, TurnEnded, TurnEvent
from media.turn_taking.settings import TurnSettings
from media.turn_taking.turn_detector import TurnDetector
from tests.media.turn_taking.turn_invariants import TurnInvariants

TICK: Final = 20
LONG_MS: Final = 13_000
"""Longer than any silence that a setting allows, and what else there is to wait for."""
NEVER: Final = 10**6
BLOCKS: Final = 20
CALLS: Final = 100
"""Random calls in each block."""
EVERYTHING: Final = {
    *("SpeechStarted", "SpeechStarted again", "SpeechStopped", "SpeechResumed", "SpeculativeTurnEnd", "AskEndOfTurn"),
    *("TurnEnded model", "TurnEnded delay", "TurnEnded fallback", "AgentStarted", "AgentStopped"),
    *("TurnDropped short", "TurnDropped cooldown", "TurnDropped protected", "TurnDropped no_words"),
    *("TurnDropped backchannel", "PlayoutPaused", "PlayoutResumed", "BargeIn", "BargeIn again"),
}
"""What happens in each block of random calls."""


@dataclass(frozen=True)
class Step:
    """One tick: the caller's audio, whether the agent is audible, and other inputs. A query to the end-of-turn model in
    this tick is answered with `eot`, `late` ticks later."""

    p: float = 0.0
    quiet_ms: float = 5000.0
    onset_ms: float | None = None
    loud: bool = False
    jitter_ms: int = 0
    audible: bool = False
    words: bool | None = None
    """False: a backchannel."""
    eot: float | None = None
    late: int = 0
    uninterruptible: bool | None = None


CHOICES: Final[dict[str, list[object]]] = {
    "p": [0.0, 0.05, 0.19, 0.21, 0.34, 0.36, 0.9, 1.0],
    "quiet_ms": [0.0, 0.0, 5.0, 30.0, 45.0, 120.0, 5000.0],
    "onset_ms": [None, 5.0, 90.0, 250.0],
    "loud": [False, False, True],
    "jitter_ms": [0, 20, 60],
    "audible": [False, True],
    "words": [None, None, None, False, False, True],
    "eot": [None, 0.0, 0.05, 0.2, 1.0],
    "late": [0, 0, 1, 3, 20, 60, NEVER],
    "uninterruptible": [None, None, None, None, True, False],
}
MS: Final[list[object]] = [None, 0, 50, 100, 150, 400, 2000]
SETTINGS: Final[dict[str, list[object]]] = {
    "turn_endpoint_delay": [None, 50, 100, 700, 2000],
    "min_turn_duration": MS,
    "min_interruption_duration": MS,
    "frame_activation_threshold": [None, 0.0, 0.1, 0.35, 0.9, 1.0],
    "post_speech_cooldown": MS,
    "ultravad_eot_threshold": [None, 0.0, 0.1, 1.0],
    "speculative_silence_ms": MS,
    "fallback_silence_ms": [None, 0, 500, 10000],
}
AHEAD: Final = [0, 15, 80, 3000]


class Run:
    """Plays steps and has every event checked. Interrupted audio may fall silent by itself."""

    def __init__(self, chosen: TurnSettings, ahead_ms: int, *, obedient: bool) -> None:
        self.turn_detector = TurnDetector(chosen, lead_ms=TICK, ask_ahead_ms=ahead_ms)
        self.invariants = TurnInvariants(chosen, lead_ms=TICK)
        self.now = 10_000.0
        self.events: list[TurnEvent] = []
        self._obedient = obedient
        self._flushed = False
        self._answers: list[tuple[float, float, float | None]] = []  # time of the answer, time of the query, answer

    def step(self, step: Step) -> None:
        self.now += TICK
        heard = self.now - step.jitter_ms
        audible = step.audible and not self._flushed
        self._flushed = self._flushed and step.audible
        if step.uninterruptible is not None:
            self.invariants.set_uninterruptible(step.uninterruptible)
            self._take(self.turn_detector.set_uninterruptible(step.uninterruptible), step)
        if step.words is not None:
            self.invariants.words()
            self._take(self.turn_detector.on_transcript(self.now, backchannel=not step.words), step)
        self._answer(step)
        window = (heard, step.p, TICK, audible, step.quiet_ms, step.onset_ms, step.loud)
        self._take(self.turn_detector.on_vad_window(*window), step)
        self._take(self.turn_detector.on_tick(self.now, audible, heard, step.quiet_ms), step)
        self.invariants.tick(self.now)

    def play(self, steps: list[Step]) -> Run:
        for step in steps:
            self.step(step)
        return self

    def check_end(self) -> None:
        """Nothing is stuck once the caller has been silent for long."""
        self.play([Step()] * (LONG_MS // TICK))
        assert self.turn_detector.idle and not self.invariants.open and not self.invariants.paused

    def _take(self, events: tuple[TurnEvent, ...], step: Step) -> None:
        for event in events:
            self.events.append(event)
            self.invariants.see(event)
            if isinstance(event, AskEndOfTurn):
                self._answers.append((self.now + step.late * TICK, event.at_ms, step.eot))
                if step.late == 0:
                    self._answer(step)
            self._flushed = self._flushed or (self._obedient and isinstance(event, BargeIn))
        if self.turn_detector.caller_speaking:
            self.invariants.talking()

    def _answer(self, step: Step) -> None:
        due = [answer for answer in self._answers if answer[0] <= self.now]
        self._answers = [answer for answer in self._answers if answer[0] > self.now]
        for _, asked_ms, p in due:
            self.invariants.answered(self.now, asked_ms, p)
            self._take(self.turn_detector.on_end_of_turn(self.now, p, asked_ms), step)


def _steps() -> st.SearchStrategy[list[Step]]:
    """Steps of some duration: real conversation does not change every 20 ms."""
    fields = {name: st.sampled_from(choices) for name, choices in CHOICES.items()}
    stretch = st.tuples(st.builds(Step, **fields), st.integers(1, 40))
    return st.lists(stretch, min_size=1, max_size=25).map(lambda pairs: [step for step, n in pairs for _ in range(n)])


@settings(max_examples=300, deadline=None, print_blob=True)
@given(
    st.builds(TurnSettings, **{name: st.sampled_from(choices) for name, choices in SETTINGS.items()}),
    st.sampled_from(AHEAD),
    st.booleans(),
    _steps(),
)
def test_no_interleaving_breaks_a_rule(chosen: TurnSettings, ahead_ms: int, obedient: bool, steps: list[Step]) -> None:
    Run(chosen, ahead_ms, obedient=obedient).play(steps).check_end()


class RandomCall:
    """A random call: its parts change a few at a time, as in a real call. Half of its audio is clear speech or
    silence."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._parts: dict[str, Any] = {name: self._random.choice(choices) for name, choices in CHOICES.items()}

    def run(self) -> Run:
        pick = self._random.choice
        chosen: dict[str, Any] = {name: pick(choices) for name, choices in SETTINGS.items()}
        return Run(TurnSettings(**chosen), pick(AHEAD), obedient=pick((True, False)))

    def steps(self) -> list[Step]:
        return [step for _ in range(self._random.randrange(10, 60)) for step in self._stretch()]

    def _stretch(self) -> list[Step]:
        """A change, and its duration; words and `set_uninterruptible` come in its first tick alone."""
        for name in self._random.sample(sorted(CHOICES), self._random.randrange(1, 4)):
            self._parts[name] = self._random.choice(CHOICES[name])
        self._parts |= self._random.choice(({}, {}, {"p": 1.0, "quiet_ms": 0.0}, {"p": 0.0, "quiet_ms": 5000.0}))
        step = Step(**self._parts)
        self._parts |= {"words": None, "uninterruptible": None}
        return [step] + [Step(**self._parts)] * int(self._random.expovariate(1 / 10))


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_random_call_breaks_a_rule(block: int) -> None:
    happened: Counter[str] = Counter()
    for seed in range(block * CALLS, (block + 1) * CALLS):
        chance = RandomCall(seed)
        run = chance.run()
        try:
            run.play(chance.steps()).check_end()
        except AssertionError as error:
            error.add_note(f"{seed=}, after {len(run.events)} events, at {run.now} ms")
            raise
        happened.update(_what(event) for event in run.events)
    assert set(happened) >= EVERYTHING, "these calls are talks"


def _what(event: TurnEvent) -> str:
    """The event's type with its reason."""
    match event:
        case TurnEnded(reason=reason) | TurnDropped(reason=reason):
            return f"{type(event).__name__} {reason}"
        case SpeechStarted(reopens=True) | BargeIn(reopens=True):
            return f"{type(event).__name__} again"
        case _:
            return type(event).__name__
