"""Which text of a response counts as played."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calls.call_record.transcript import Transcript, TranscriptLine, played_text
from models.protocols import ChatMessage, SynthesizedSpeech, WordTiming

TEXT = "One two, three."
SPEECH = SynthesizedSpeech(
    TEXT, np.zeros(300, np.int16), 8000, (WordTiming(3, 100), WordTiming(8, 200), WordTiming(15, 300))
)
UNMARKED = SynthesizedSpeech(TEXT, np.zeros(300, np.int16), 8000)


def test_a_word_counts_once_its_last_sample_was_played() -> None:
    assert [played_text(SPEECH, heard) for heard in (0, 99, 100, 199, 200, 299, 300)] == [
        "",
        "",
        "One",
        "One",
        "One two,",
        "One two,",
        TEXT,
    ]


def test_without_the_places_of_words_the_text_is_cut_between_words_in_proportion() -> None:
    assert [played_text(UNMARKED, heard) for heard in (0, 79, 80, 199, 299, 300)] == [
        "",
        "",
        "One",
        "One two,",
        "One two,",
        TEXT,
    ]


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from([SPEECH, UNMARKED]))
def test_more_heard_never_means_less_text(one: int, other: int, speech: SynthesizedSpeech) -> None:
    less, more = (played_text(speech, heard) for heard in sorted((one, other)))
    assert more.startswith(less)
    assert TEXT.startswith(more)


def test_a_line_that_was_not_played_is_no_item() -> None:
    talk = Transcript()
    talk.add_user_turn("hello")
    line = TranscriptLine("assistant", "")
    talk.add_agent_line(line)
    assert talk.items() == [{"role": "user", "content": "hello"}]
    line.text = "Hi"
    assert talk.items()[1] == {"role": "assistant", "content": "Hi"}
    assert talk.messages()[1] == ChatMessage("assistant", "Hi")


def test_a_turn_that_goes_on_is_one_item_and_one_turn() -> None:
    talk = Transcript()
    talk.add_user_turn("I would")
    talk.extend_user_turn("like a room")
    assert (talk.items(), talk.turn_count) == ([{"role": "user", "content": "I would like a room"}], 1)


def test_a_turn_after_something_heard_is_a_new_one() -> None:
    talk = Transcript()
    talk.add_agent_line(TranscriptLine("assistant", "Hello."))
    talk.extend_user_turn("hi")
    assert [item["content"] for item in talk.items()] == ["Hello.", "hi"]
    assert talk.turn_count == 1
