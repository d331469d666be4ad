"""Server-sent events, however the stream is cut into chunks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import RemoteModelError
from models.remote.sse_parser import MAX_EVENT_BYTES, SseParser

STREAM = (
    b": a comment\r\n\r\n"
    b'data: {"a": "\xc3\xa4"}\r\n\r\n'
    b"event: other\nid: 7\nretry: 10\ndata:second\n\n"
    b"data: in\rdata: two lines\r\r"
    b"data\n\n"
    b"nothing: known\n\n"
    b"data: [DONE]\n\n"
)
EVENTS = ['{"a": "ä"}', "second", "in\ntwo lines", "", "[DONE]"]


def read(*chunks: bytes) -> list[str]:
    events = SseParser()
    return [event for chunk in chunks for event in events.feed(chunk)] + events.finish()


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_events_do_not_depend_on_the_chunks(cuts: set[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in pairwise(places))) == EVENTS


def test_a_last_event_without_its_blank_line_counts() -> None:
    assert read(b"data: one\n\ndata: two") == ["one", "two"]


def test_invalid_utf8_is_replaced() -> None:
    assert read(b"data: \xff\n\n") == ["\ufffd"]


@pytest.mark.parametrize("line", [b"data: " + bytes(MAX_EVENT_BYTES), b"data: 1234567890\n" * (MAX_EVENT_BYTES // 10)])
def test_an_endless_event_raises(line: bytes) -> None:
    events = SseParser()
    with pytest.raises(RemoteModelError, match="longer than it may be"):
        for at in range(0, len(line), 65536):
            events.feed(line[at : at + 65536])
