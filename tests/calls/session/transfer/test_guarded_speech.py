"""Speech streams whose model fails: what is freed, what is raised, and what the log has as the cause."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast
from unittest import mock

import numpy as np
import pytest

from calls.call_record.metering import UsageMeter
from calls.session.agent_config import AgentModels
from calls.session.conversation_runner import CallParticipants, SpeechStreams, open_speech_streams
from calls.session.transfer.guarded_speech import TEXT_TIMEOUT_S, open_guarded_streams
from calls.tools.toolset import ToolSet
from config.errors import ModelError
from tests.fakes.scripted_call import AlwaysEndOfTurn, ScriptedStt, ScriptedSttStream
from tests.virtual_time import run_virtually

AUDIO = np.zeros(160, np.int16)


class FailingStream(ScriptedSttStream):
    """A speech-to-text stream, all of whose methods raise `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(deque(), lambda _: None)
        self.end_turn_error = self.flush_error = self.error = error

    def partial(self) -> str:
        raise self.error

    def close(self) -> None:
        raise self.error


class ClosedEndOfTurn(AlwaysEndOfTurn):
    """Counts how often it was closed; `error` is raised then."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.closed = 0

    def close(self) -> None:
        self.closed += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def errors() -> list[Exception]:
    """What `on_error` got."""
    return []


async def test_the_recognizer_is_closed_when_the_end_of_turn_stream_cannot_be_opened() -> None:
    stt, end_of_turn = ScriptedStt(), AlwaysEndOfTurn()
    agent = SimpleNamespace(name="Ada", system_prompt="", language_hint="en")
    participants = SimpleNamespace(agent=agent, call=SimpleNamespace(context_variables={}), meter=UsageMeter())
    models = SimpleNamespace(stt=stt, end_of_turn=end_of_turn)
    fault = mock.patch.object(end_of_turn, "open", side_effect=ModelError("no more streams"))
    with fault, pytest.raises(ModelError, match="no more streams"):
        open_speech_streams(
            cast(AgentModels, models), cast(CallParticipants, participants), ToolSet(), 8000, lambda _: None
        )
    assert [each.closed for each in stt.streams] == [True]


def test_both_streams_are_closed_although_the_first_raises() -> None:
    end_of_turn = ClosedEndOfTurn()
    with pytest.raises(RuntimeError, match="a fault"):
        SpeechStreams(FailingStream(RuntimeError("a fault")), end_of_turn).close()
    assert end_of_turn.closed == 1


def test_guarded_streams_raise_nothing_when_they_are_closed(errors: list[Exception]) -> None:
    of_stt, of_end_of_turn = RuntimeError("of speech to text"), RuntimeError("of the end of turns")
    end_of_turn = ClosedEndOfTurn(of_end_of_turn)
    open_guarded_streams(lambda: SpeechStreams(FailingStream(of_stt), end_of_turn), errors.append).close()
    assert errors == [of_stt, of_end_of_turn]
    assert end_of_turn.closed == 1


async def test_a_recognizer_whose_partial_transcript_fails_has_no_words_any_more(errors: list[Exception]) -> None:
    fault = RuntimeError("a fault")
    stream = FailingStream(fault)
    stt = open_guarded_streams(lambda: SpeechStreams(stream, AlwaysEndOfTurn()), errors.append).stt
    assert (stt.partial(), stt.partial()) == ("", "")
    stt.feed(AUDIO)
    assert (await stt.flush(), await stt.end_turn()) == ("", "")
    assert errors == [fault]
    assert stream.fed == 0


@pytest.mark.parametrize("text_of", [lambda stt: stt.flush(), lambda stt: stt.end_turn()])
async def test_a_timeout_of_the_recognizer_itself_keeps_its_cause(
    errors: list[Exception], text_of: Callable[[ScriptedSttStream], object]
) -> None:
    fault = TimeoutError("the model's server did not answer")
    stt = open_guarded_streams(lambda: SpeechStreams(FailingStream(fault), AlwaysEndOfTurn()), errors.append).stt
    assert await text_of(stt) == ""  # type: ignore[arg-type, misc]
    assert errors == [fault]


def test_a_recognizer_that_hangs_has_no_words_after_5_s(errors: list[Exception]) -> None:
    async def work() -> None:
        stream = ScriptedSttStream(deque(["too late"]), lambda _: None)
        stream.gate.clear()
        stt = open_guarded_streams(lambda: SpeechStreams(stream, AlwaysEndOfTurn()), errors.append).stt
        assert await stt.end_turn() == ""

    run_virtually(work())
    assert [str(each) for each in errors] == [f"the recognizer has returned no words after {TEXT_TIMEOUT_S:.0f} s"]
    assert isinstance(errors[0], ModelError)
