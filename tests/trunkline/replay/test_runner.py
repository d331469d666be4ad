"""How a replay waits for its models: what they say comes at the same moment of the recording every time."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import Samples
from media.replay.recording_reader import RecordedCall, agent_audible
from media.turns.settings import TurnSettings
from models.protocols import SpeechToText
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from models.turn_detection.lexical import LexicalEndOfTurn
from tests.fakes.fake_models import CertainStt
from tests.fakes.scripted_call import AlwaysEndOfTurn
from tests.media.speech import silence, speech
from trunkline.replay.runner import Replay, ReplayModels
from trunkline.replay.turn_comparison import NO_WORDS, ReplayOutcome

SURE = ReplayModels(CertainStt(), AlwaysEndOfTurn(), None)
LONG = "our office is open from nine to five on every weekday and you will find it next to the train station"
NO_MODEL = TurnSettings(ultravad_eot_threshold=None)


def recorded(caller: Samples, agent: Samples) -> RecordedCall:
    """A call of these two sides, the shorter one followed by silence, and a second more."""
    length = (max(len(caller), len(agent)) // 160 + 50) * 160
    return RecordedCall(8000, *(np.pad(side, (0, length - len(side))) for side in (caller, agent)))


async def outcome(
    sound: RecordedCall, settings: TurnSettings = NO_MODEL, hearing: ReplayModels = SURE, protected: bool = False
) -> ReplayOutcome:
    return await Replay(sound, agent_audible(sound), settings, hearing, first_message_uninterruptible=protected).run()


def asked(word: str) -> RecordedCall:
    """The caller says something over a long sentence of the agent."""
    return recorded(np.concatenate([silence(1500), speech(word)]), np.concatenate([silence(500), speech(LONG)]))


class Deaf(CertainStt):
    """Hears sound, no words."""

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> DeafStream:
        return DeafStream()


class DeafStream:
    def feed(self, samples: Samples) -> None:
        pass

    def partial(self) -> str:
        return ""

    async def flush(self) -> str:
        return ""

    async def end_turn(self) -> str:
        return ""

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass


class Pensive(AlwaysEndOfTurn):
    """Answers from another thread, after a time that nobody knows: no to the first question, then yes."""

    def __init__(self) -> None:
        self.questions = 0

    def ask(self, answer: Callable[[float | None], None]) -> None:
        self.questions += 1
        p = 0.0 if self.questions == 1 else 1.0
        threading.Thread(target=lambda: answer(p)).start()

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> Pensive:
        return self


async def test_words_over_the_agent_interrupt_it() -> None:
    heard = await outcome(asked("hold on please"))
    assert (heard.interruptions, heard.resumes) == (1, 0)
    assert len(heard.turns) == 1


async def test_a_sound_without_words_only_pauses_the_agent() -> None:
    heard = await outcome(asked("hmm"), hearing=ReplayModels(Deaf(), AlwaysEndOfTurn(), None))
    assert (heard.pauses, heard.interruptions, heard.resumes) == (1, 0, 1)
    assert heard.dropped == {"no_words": 1}


async def test_the_first_message_is_protected_as_in_the_call() -> None:
    heard = await outcome(asked("hold on please"), protected=True)
    assert (heard.pauses, heard.interruptions, heard.dropped) == (0, 0, {"protected": 1})
    twice = recorded(
        asked("hold on please").rx_audio, np.concatenate([silence(100), speech("hello"), silence(500), speech(LONG)])
    )
    assert (await outcome(twice, protected=True)).interruptions == 1, "the second message is not"


async def test_a_turn_in_which_no_words_are_found_is_no_turn() -> None:
    sound = recorded(np.concatenate([silence(500), speech("hello there")]), silence(0))
    heard = await outcome(sound, hearing=ReplayModels(Deaf(), AlwaysEndOfTurn(), None))
    assert (heard.turns, heard.dropped) == ([], {NO_WORDS: 1})


async def test_an_answer_from_another_thread_counts_at_the_next_tick_whenever_it_comes() -> None:
    sound = recorded(np.concatenate([silence(500), speech("hello there"), silence(2000)]), silence(0))
    (turn,) = (await outcome(sound, TurnSettings(), ReplayModels(CertainStt(), Pensive(), None))).turns
    assert turn.ended_by == "model"
    assert turn.wait_ms == pytest.approx(300, abs=40), "the second question, 200 ms after the first"
    again = await outcome(sound, TurnSettings(), ReplayModels(CertainStt(), Pensive(), None))
    assert list(again.turns) == [turn]


async def test_a_model_that_raises_ends_the_replay() -> None:
    class Broken(CertainStt):
        def open(
            self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
        ) -> DeafStream:
            return BrokenStream()

    class BrokenStream(DeafStream):
        def feed(self, samples: Samples) -> None:
            raise RuntimeError("the recognizer is gone")

    with pytest.raises(RuntimeError, match="the recognizer is gone"):
        await outcome(asked("hold on please"), hearing=ReplayModels(Broken(), AlwaysEndOfTurn(), None))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ear() -> AsyncIterator[SpeechToText]:
    ear = PocketsphinxSpeechToText(threads=2, decoders=1)
    yield ear
    ear.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_real_recognizer_says_the_same_at_the_same_moment_every_time(ear: SpeechToText) -> None:
    caller = [silence(600), speech("what is your address"), silence(1500), speech("i want to go to the"), silence(900)]
    sound = recorded(
        np.concatenate([*caller, speech("train station")]), np.concatenate([silence(2500), speech("hello there")])
    )
    hearing = ReplayModels(ear, LexicalEndOfTurn(), "en")
    first, second = [await outcome(sound, TurnSettings(), hearing) for _ in range(2)]
    assert first == second
    assert len(first.turns) >= 2
    assert first.turns[0].ended_by == "model", "the words have said so"
