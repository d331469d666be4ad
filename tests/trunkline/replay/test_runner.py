"""Replay runner: the results of models arrive at the same tick of the recording every time."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import Samples
from media.replay.recording_reader import RecordedCall, agent_audible
from media.turn_taking.settings import TurnSettings
from models.end_of_turn.lexical import LexicalEndOfTurn
from models.protocols import SpeechToText
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from tests.fakes.fake_models import CertainStt
from tests.fakes.scripted_call import AlwaysEndOfTurn
from tests.media.speech import silence, speech
from trunkline.replay.runner import Replay, ReplayModels
from trunkline.replay.turn_comparison import NO_WORDS, ReplayOutcome

SURE = ReplayModels(CertainStt(), AlwaysEndOfTurn(), None)
LONG = "our office is open from nine to five on every weekday and you will find it next to the train station"
NO_MODEL = TurnSettings(ultravad_eot_threshold=None)


def recorded(caller: Samples, agent: Samples) -> RecordedCall:
    """A recording of these two sides, the shorter one padded with silence, and a second of silence at the end."""
    length = (max(len(caller), len(agent)) // 160 + 50) * 160
    return RecordedCall(8000, *(np.pad(side, (0, length - len(side))) for side in (caller, agent)))


async def outcome(
    sound: RecordedCall, settings: TurnSettings = NO_MODEL, models: ReplayModels = SURE, uninterruptible: bool = False
) -> ReplayOutcome:
    return await Replay(
        sound, agent_audible(sound), settings, models, first_message_uninterruptible=uninterruptible
    ).run()


def barge_in(word: str) -> RecordedCall:
    """A recording in which the caller speaks over a long sentence of the agent."""
    return recorded(np.concatenate([silence(1500), speech(word)]), np.concatenate([silence(500), speech(LONG)]))


class WordlessStt(CertainStt):
    """A recognizer without any text."""

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> WordlessStream:
        return WordlessStream()


class WordlessStream:
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


class ThreadedEndOfTurn(AlwaysEndOfTurn):
    """An end-of-turn model that answers from another thread, after an undefined time: no to the first request, then
    yes."""

    def __init__(self) -> None:
        self.questions = 0

    def ask(self, answer: Callable[[float | None], None]) -> None:
        self.questions += 1
        p = 0.0 if self.questions == 1 else 1.0
        threading.Thread(target=lambda: answer(p)).start()

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> ThreadedEndOfTurn:
        return self


async def test_words_during_the_agents_speech_interrupt_it() -> None:
    result = await outcome(barge_in("hold on please"))
    assert (result.interruptions, result.resumes) == (1, 0)
    assert len(result.turns) == 1


async def test_sound_without_words_only_pauses_the_agent() -> None:
    result = await outcome(barge_in("hmm"), models=ReplayModels(WordlessStt(), AlwaysEndOfTurn(), None))
    assert (result.pauses, result.interruptions, result.resumes) == (1, 0, 1)
    assert result.dropped == {"no_words": 1}


async def test_the_first_message_can_be_uninterruptible() -> None:
    result = await outcome(barge_in("hold on please"), uninterruptible=True)
    assert (result.pauses, result.interruptions, result.dropped) == (0, 0, {"protected": 1})
    twice = recorded(
        barge_in("hold on please").rx_audio, np.concatenate([silence(100), speech("hello"), silence(500), speech(LONG)])
    )
    assert (await outcome(twice, uninterruptible=True)).interruptions == 1, "the second message is not"


async def test_a_turn_without_words_is_dropped() -> None:
    sound = recorded(np.concatenate([silence(500), speech("hello there")]), silence(0))
    result = await outcome(sound, models=ReplayModels(WordlessStt(), AlwaysEndOfTurn(), None))
    assert (result.turns, result.dropped) == ([], {NO_WORDS: 1})


async def test_an_answer_from_another_thread_is_delivered_at_the_next_tick() -> None:
    sound = recorded(np.concatenate([silence(500), speech("hello there"), silence(2000)]), silence(0))
    (turn,) = (await outcome(sound, TurnSettings(), ReplayModels(CertainStt(), ThreadedEndOfTurn(), None))).turns
    assert turn.ended_by == "model"
    assert turn.wait_ms == pytest.approx(300, abs=40), "the second question, 200 ms after the first"
    again = await outcome(sound, TurnSettings(), ReplayModels(CertainStt(), ThreadedEndOfTurn(), None))
    assert list(again.turns) == [turn]


async def test_a_model_that_raises_ends_the_replay() -> None:
    class Broken(CertainStt):
        def open(
            self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
        ) -> WordlessStream:
            return BrokenStream()

    class BrokenStream(WordlessStream):
        def feed(self, samples: Samples) -> None:
            raise RuntimeError("the recognizer is gone")

    with pytest.raises(RuntimeError, match="the recognizer is gone"):
        await outcome(barge_in("hold on please"), models=ReplayModels(Broken(), AlwaysEndOfTurn(), None))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recognizer() -> AsyncIterator[SpeechToText]:
    recognizer = PocketsphinxSpeechToText(threads=2, decoders=1)
    yield recognizer
    recognizer.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_replay_with_a_real_recognizer_is_deterministic(recognizer: SpeechToText) -> None:
    caller = [silence(600), speech("what is your address"), silence(1500), speech("i want to go to the"), silence(900)]
    sound = recorded(
        np.concatenate([*caller, speech("train station")]), np.concatenate([silence(2500), speech("hello there")])
    )
    models = ReplayModels(recognizer, LexicalEndOfTurn(), "en")
    first, second = [await outcome(sound, TurnSettings(), models) for _ in range(2)]
    assert first == second
    assert len(first.turns) >= 2
    assert first.turns[0].ended_by == "model", "by the recognized words"
