"""Smart Turn judges real speech off the tick thread, and every query gets one answer."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
import soxr
from structlog.testing import capture_logs

import models.end_of_turn.smart_turn
from config.errors import StartupError
from media.audio_port import Samples
from models.end_of_turn.lexical import COMPLETE, INCOMPLETE, LexicalEndOfTurn
from models.end_of_turn.smart_turn import SmartTurn, SmartTurnNetwork, model_path
from models.protocols import EndOfTurn, EndOfTurnStream
from tests.models.conftest import Caller

TIMEOUT_S = 20
SENTENCE = "I want to change the delivery address of my last order."


@pytest.fixture(scope="module")
def smart_turn() -> Iterator[SmartTurn]:
    model = SmartTurn(threads=1, max_wait_s=TIMEOUT_S)
    yield model
    model.close()


def opened(model: EndOfTurn, words: str = "", language: str | None = "en", rate: int = 16000) -> EndOfTurnStream:
    return model.open(rate=rate, language=language, partial=lambda: words)


def feed(stream: EndOfTurnStream, sound: Samples, rate: int = 16000) -> None:
    """As a call does: 20 ms at a time."""
    for start in range(0, len(sound), rate // 50):
        stream.feed(sound[start : start + rate // 50])


def ask(stream: EndOfTurnStream) -> float | None:
    answers: SimpleQueue[float | None] = SimpleQueue()
    stream.ask(answers.put)
    return answers.get(timeout=TIMEOUT_S)


class Gate:
    """Words that are available once `open` is called: a query waits in the worker until then."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    def words(self) -> str:
        self.reached.set()
        assert self._open.wait(TIMEOUT_S)
        return ""

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def test_a_sentence_is_more_complete_at_its_end_than_in_its_middle(smart_turn: SmartTurn, caller: Caller) -> None:
    spoken = caller.voice(SENTENCE, "slt")[:-3200]
    stream = opened(smart_turn)
    feed(stream, np.pad(spoken[: len(spoken) // 2], (0, 1600)))
    middle = ask(stream)
    stream.reset()
    feed(stream, np.pad(spoken, (0, 1600)))
    end = ask(stream)
    assert middle is not None and end is not None and end > 0.5 > middle


def test_a_stream_answers_the_probability_of_all_audio_fed(smart_turn: SmartTurn, caller: Caller) -> None:
    sound = caller.voice(SENTENCE)
    stream = opened(smart_turn)
    feed(stream, sound[:20000])
    ask(stream)
    feed(stream, sound[20000:])
    assert ask(stream) == pytest.approx(SmartTurnNetwork(model_path()).probability(sound, 16000), abs=1e-6)


def test_only_the_last_eight_seconds_count(smart_turn: SmartTurn, caller: Caller) -> None:
    sound = np.tile(caller.voice(SENTENCE), 4)
    assert len(sound) > 10 * 16000
    stream = opened(smart_turn)
    feed(stream, sound)
    assert ask(stream) == pytest.approx(
        SmartTurnNetwork(model_path()).probability(sound[-8 * 16000 :], 16000), abs=1e-6
    )


def test_telephone_audio_is_judged_at_its_own_rate(smart_turn: SmartTurn, caller: Caller) -> None:
    line = caller.line(SENTENCE)
    stream = opened(smart_turn, rate=8000)
    feed(stream, line, 8000)
    wide = soxr.resample(line, 8000, 16000)
    assert ask(stream) == pytest.approx(SmartTurnNetwork(model_path()).probability(wide, 16000), abs=1e-6)


def test_incomplete_words_overrule_the_network(smart_turn: SmartTurn, caller: Caller) -> None:
    sound = caller.voice(SENTENCE, "slt")
    answers = {}
    for words in ("my last order", "please change my"):
        stream = opened(smart_turn, words)
        feed(stream, sound)
        answers[words] = ask(stream)
    assert answers["please change my"] == INCOMPLETE < 0.5 < (answers["my last order"] or 0)


def test_complete_phrases_overrule_the_network(smart_turn: SmartTurn, caller: Caller) -> None:
    cut = caller.voice(SENTENCE, "slt")
    answers = {}
    for words in ("okay goodbye", "okay and then goodness"):
        stream = opened(smart_turn, words)
        feed(stream, cut[: len(cut) // 2])
        answers[words] = ask(stream)
    assert answers["okay goodbye"] == COMPLETE > 0.5 > (answers["okay and then goodness"] or 0)


def test_incomplete_words_are_those_of_the_language_of_the_call(smart_turn: SmartTurn, caller: Caller) -> None:
    stream = opened(smart_turn, "please change my", "tr")
    feed(stream, caller.voice(SENTENCE, "slt"))
    assert (ask(stream) or 0) > 0.5


def test_without_audio_the_answer_is_none(smart_turn: SmartTurn) -> None:
    answers: list[float | None] = []
    stream = opened(smart_turn)
    stream.ask(answers.append)
    feed(stream, np.zeros(1600, np.int16))
    stream.reset()
    stream.ask(answers.append)
    assert answers == [None, None]


def test_ask_and_feed_return_at_once(smart_turn: SmartTurn, gate: Gate) -> None:
    """The worker stands still meanwhile."""
    busy = smart_turn.open(rate=16000, language="en", partial=gate.words)
    feed(busy, np.ones(1600, np.int16))
    busy.ask(lambda p: None)
    assert gate.reached.wait(TIMEOUT_S)
    other, answers = opened(smart_turn), SimpleQueue[float | None]()
    began = time.perf_counter()
    feed(other, np.ones(16000, np.int16))
    other.ask(answers.put)
    assert time.perf_counter() - began < 1 and answers.empty()
    gate.open()
    assert answers.get(timeout=TIMEOUT_S) is not None


def test_a_newer_query_of_a_call_replaces_the_pending_one(smart_turn: SmartTurn, gate: Gate) -> None:
    busy = smart_turn.open(rate=16000, language="en", partial=gate.words)
    feed(busy, np.ones(1600, np.int16))
    answers: SimpleQueue[tuple[str, bool]] = SimpleQueue()
    busy.ask(lambda p: answers.put(("first", p is not None)))
    assert gate.reached.wait(TIMEOUT_S)
    for name in ("second", "third"):
        feed(busy, np.ones(160, np.int16))
        busy.ask(lambda p, name=name: answers.put((name, p is not None)))  # type: ignore[misc]
    assert answers.get(timeout=TIMEOUT_S) == ("second", False)
    gate.open()
    assert [answers.get(timeout=TIMEOUT_S) for _ in range(2)] == [("first", True), ("third", True)]
    assert ask(busy) is not None and answers.empty()


@pytest.mark.parametrize("end", ["reset", "close"])
def test_a_query_of_an_ended_turn_is_answered_with_none(smart_turn: SmartTurn, gate: Gate, end: str) -> None:
    """Neither the query in progress nor the pending one; both are answered once."""
    stream = smart_turn.open(rate=16000, language="en", partial=gate.words)
    feed(stream, np.ones(1600, np.int16))
    answers: SimpleQueue[float | None] = SimpleQueue()
    stream.ask(answers.put)
    assert gate.reached.wait(TIMEOUT_S)
    stream.ask(answers.put)
    getattr(stream, end)()
    assert answers.get(timeout=TIMEOUT_S) is None and answers.empty()
    gate.open()
    assert answers.get(timeout=TIMEOUT_S) is None
    ask(opened(smart_turn))
    assert answers.empty()


def test_a_closed_stream_answers_none(smart_turn: SmartTurn) -> None:
    stream = opened(smart_turn)
    stream.close()
    stream.close()
    feed(stream, np.ones(1600, np.int16))
    assert ask(stream) is None


def test_a_closed_model_answers_none() -> None:
    model = SmartTurn(threads=1)
    stream, answers = opened(model), SimpleQueue[float | None]()
    feed(stream, np.ones(1600, np.int16))
    stream.ask(answers.put)
    model.close()
    model.close()
    assert answers.get(timeout=TIMEOUT_S) is not None
    assert ask(stream) is None


def test_an_error_is_answered_with_none_and_logged_once_for_its_type(smart_turn: SmartTurn) -> None:
    def fails() -> str:
        raise RuntimeError("no words today")

    stream = smart_turn.open(rate=16000, language="en", partial=fails)
    feed(stream, np.ones(1600, np.int16))
    with capture_logs() as logs:
        assert [ask(stream) for _ in range(3)] == [None, None, None]
    assert [(line["event"], line["log_level"]) for line in logs] == [("end_of_turn.failed", "error")]


def test_an_error_of_a_callback_does_not_affect_other_calls(smart_turn: SmartTurn) -> None:
    def raises(p: float | None) -> None:
        raise RuntimeError("gone")

    stream = opened(smart_turn)
    feed(stream, np.ones(1600, np.int16))
    with capture_logs() as logs:
        stream.ask(raises)
        assert asked_again(smart_turn) is not None
    assert "end_of_turn.answer_failed" in [line["event"] for line in logs]


def asked_again(model: SmartTurn) -> float | None:
    stream = opened(model)
    feed(stream, np.ones(1600, np.int16))
    return ask(stream)


def test_concurrent_calls_get_one_answer_each(smart_turn: SmartTurn) -> None:
    streams = [opened(smart_turn) for _ in range(12)]
    answers: SimpleQueue[tuple[int, float | None]] = SimpleQueue()
    for number, stream in enumerate(streams):
        feed(stream, np.full(1600, number, np.int16))
        stream.ask(lambda p, number=number: answers.put((number, p)))  # type: ignore[misc]
    got = [answers.get(timeout=TIMEOUT_S) for _ in streams]
    assert sorted(number for number, _ in got) == list(range(12)) and all(p is not None for _, p in got)
    assert answers.empty()


def test_the_latency_is_measured() -> None:
    """So that it can be queried ahead of the deadline."""
    model = SmartTurn(threads=1)
    model.close()
    assert 0 < model.latency_ms == round(model.takes_ms) < 5000
    assert LexicalEndOfTurn().latency_ms == 0


def test_the_pipecat_package_is_not_imported() -> None:
    """It would load much that is not installed."""
    code = (
        "import sys; from models.end_of_turn.smart_turn import model_path; model_path();"
        "assert 'pipecat' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=TIMEOUT_S)


def test_a_missing_or_damaged_file_is_an_error_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "smart-turn-v3.2-cpu.onnx"
    damaged.write_bytes(model_path().read_bytes()[:100_000])
    with pytest.raises(StartupError, match=r"smart-turn-v3\.2-cpu\.onnx cannot be loaded"):
        SmartTurnNetwork(damaged)
    monkeypatch.setattr(models.end_of_turn.smart_turn, "_FOLDER", "pipecat/not/here")
    with pytest.raises(StartupError, match=r"missing .*run `make setup`"):
        SmartTurn()


def test_a_query_that_waited_too_long_is_judged_by_its_words(smart_turn: SmartTurn, caller: Caller) -> None:
    busy = SmartTurn(threads=1, max_wait_s=-1.0)
    answers = []
    for model in (smart_turn, busy):
        stream = opened(model, "my last order")
        feed(stream, caller.voice(SENTENCE))
        answers.append(ask(stream))
    busy.close()
    assert answers[0] != answers[1] == LexicalEndOfTurn().probability("my last order", "en")
