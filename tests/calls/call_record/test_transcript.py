"""Transcripts: the played text of responses, and turns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calls.call_record.transcript import Transcript, TranscriptLine, played_text, word_starts
from models.protocols import ChatMessage, SynthesizedSpeech, WordTiming
from tests.transcripts import without_times

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


def test_without_word_timings_the_text_is_cut_between_words_in_proportion() -> None:
    assert [played_text(UNMARKED, heard) for heard in (0, 79, 80, 199, 299, 300)] == [
        "",
        "",
        "One",
        "One two,",
        "One two,",
        TEXT,
    ]


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from([SPEECH, UNMARKED]))
def test_more_played_audio_never_means_less_text(one: int, other: int, speech: SynthesizedSpeech) -> None:
    less, more = (played_text(speech, heard) for heard in sorted((one, other)))
    assert more.startswith(less)
    assert TEXT.startswith(more)


def test_a_line_that_was_not_played_is_no_item() -> None:
    transcript = Transcript()
    transcript.add_user_turn("hello")
    line = TranscriptLine("assistant", "")
    transcript.add_agent_line(line)
    assert transcript.items() == [{"role": "user", "content": "hello"}]
    line.text = "Hi"
    assert transcript.items()[1] == {"role": "assistant", "content": "Hi"}
    assert transcript.messages()[1] == ChatMessage("assistant", "Hi")


def test_an_extended_turn_is_one_item_and_one_turn() -> None:
    transcript = Transcript()
    transcript.add_user_turn("I would")
    transcript.extend_user_turn("like a room")
    assert (transcript.items(), transcript.turn_count) == ([{"role": "user", "content": "I would like a room"}], 1)


def test_a_turn_after_a_played_response_is_a_new_one() -> None:
    transcript = Transcript()
    transcript.add_agent_line(TranscriptLine("assistant", "Hello."))
    transcript.extend_user_turn("hi")
    assert [item["content"] for item in transcript.items()] == ["Hello.", "hi"]
    assert transcript.turn_count == 1


def test_utterances_of_connected_parties_are_in_order_after_the_talk_with_the_agent() -> None:
    transcript = Transcript()
    transcript.add_user_turn("a person please")
    transcript.add_agent_line(TranscriptLine("assistant", "One moment."))
    transcript.add_utterance("caller", "second", 2000.0)
    transcript.add_utterance("target", "first", 1000.0)
    transcript.add_utterance("target", "third", 2000.0)
    assert without_times(transcript.items()) == [
        {"role": "user", "content": "a person please"},
        {"role": "assistant", "content": "One moment."},
        {"role": "user", "content": "first", "speaker": "target"},
        {"role": "user", "content": "second", "speaker": "caller"},
        {"role": "user", "content": "third", "speaker": "target"},
    ]
    assert transcript.turn_count == 1


def test_items_have_whole_ms_since_the_answer() -> None:
    transcript = Transcript(zero_ms=1000.0)
    transcript.add_user_turn("I would", 1200.4, 1700.0)
    transcript.extend_user_turn("like a room", 1900.0, 2400.6)
    line = TranscriptLine("assistant", "Which day?", start_ms=2600.0)
    transcript.add_agent_line(line)
    transcript.add_utterance("target", "Sales.", 5000.0, 5500.0)
    assert transcript.items() == [
        {"role": "user", "content": "I would like a room", "startMs": 200, "endMs": 1401},
        {"role": "assistant", "content": "Which day?", "startMs": 1600},
        {"role": "user", "content": "Sales.", "speaker": "target", "startMs": 4000, "endMs": 4500},
    ]


def test_words_begin_where_the_ones_before_them_end() -> None:
    assert word_starts(SPEECH) == [0, 100 / 8000, 200 / 8000]
    assert word_starts(UNMARKED) == []
    joined = SynthesizedSpeech("Room 12 \u2013 free", SPEECH.samples, 8000, (WordTiming(9, 200), WordTiming(14, 300)))
    assert word_starts(joined) == [0, 0, 0, 200 / 8000]


def test_items_of_an_ended_call_have_the_times_of_their_words() -> None:
    transcript = Transcript(zero_ms=1000.0)
    transcript.add_user_turn("I would", 1200.0, 1700.0)
    transcript.time_words([1190.0, 1400.4])
    transcript.extend_user_turn("like it", 1900.0, 2400.0)
    transcript.time_words([1900.0, 2500.0])
    transcript.add_user_turn("of unknown")
    transcript.time_words([3000.0])
    transcript.add_utterance("target", "Sales.", 5000.0, 5500.0)
    transcript.time_words([])
    assert [item.get("words") for item in transcript.items()] == [None, None, None]
    assert [item.get("words") for item in transcript.items(words=True)] == [[0, 200, 700, 1200], None, None]
