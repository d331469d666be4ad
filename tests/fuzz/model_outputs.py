"""Fuzz checks of the outputs of models and model servers: the result does not depend on how a stream is split."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from jinja2 import TemplateError

from models.errors import RemoteModelError
from models.llm.llama.output.tool_call_formats import parse_calls
from models.llm.llama.output.tool_call_parser import ToolCallParser
from models.llm.llama.prompt.chat_template import ChatTemplate
from models.protocols import ChatMessage, ChatPrompt, TextDelta, ToolCall
from models.remote import chat_stream_parser
from models.remote.chat_stream_parser import ChatStreamParser
from models.remote.json_safety import error_excerpt, parse_json
from models.remote.sse_parser import MAX_EVENT_BYTES, SseParser
from models.remote.wav import decode_wav, encode_wav
from tests.fuzz.invariants import check_storable

TOOLS: Final = {
    "get_time": {"type": "object", "properties": {"city": {"type": "string"}, "hours": {"type": "integer"}}},
    "hang_up": {"type": "object", "properties": {}},
}


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces whose size depends on its first character."""
    size = 1 + ord(text[0]) % 13 if text else 1
    for at in range(0, len(text), size):
        yield text[at : at + size]


def _parse(parser: ToolCallParser, pieces: Iterator[str]) -> tuple[str, list[ToolCall]]:
    parts = [part for piece in pieces for part in parser.feed(piece)]
    parts += parser.finish()
    assert not list(parser.finish())
    spoken = "".join(part.text for part in parts if isinstance(part, TextDelta))
    return spoken, [part for part in parts if isinstance(part, ToolCall)]


def tool_calls(data: bytes) -> None:
    """An answer of a language model in pieces: the spoken text is not much longer than the answer, and calls have
    names."""
    text = data.decode("utf-8", "replace")
    ids = (str(number) for number in count())
    spoken, calls = _parse(ToolCallParser(TOOLS, lambda: next(ids)), _pieces(text))
    assert len(spoken) <= 2 * len(text)
    check_storable(spoken)
    for call in calls:
        assert call.name
    parse_calls(text, TOOLS)


def server_events(data: bytes) -> None:
    """A stream of server-sent events, in pieces and whole; each event is a chunk of an answer."""
    whole, cut = _events(data, len(data) or 1), _events(data, 1 + (data[0] if data else 0) % 13)
    assert whole == cut
    answer = ChatStreamParser(str(number) for number in count())
    text = ""
    try:
        for event in whole or ():
            text += answer.feed(parse_json(event))
            assert len(text) <= chat_stream_parser.MAX_TEXT
        calls = answer.calls()
    except RemoteModelError as error:
        check_storable(str(error))
        return
    check_storable(text + answer.rest())
    assert len(calls) <= chat_stream_parser.MAX_CALLS
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        check_storable(call.name + call.arguments)
        assert len(call.arguments) <= chat_stream_parser.MAX_ARGUMENTS


def _events(data: bytes, size: int) -> list[str] | None:
    """The events of a stream that is split into pieces of `size`; None if one was too long."""
    stream = SseParser()
    events: list[str] = []
    try:
        for at in range(0, len(data), size):
            events += stream.feed(data[at : at + size])
        events += stream.finish()
    except RemoteModelError:
        assert len(data) > MAX_EVENT_BYTES
        return None
    return events


def server_errors(data: bytes) -> None:
    """The body of an error response: its excerpt is one short, printable line."""
    excerpt = error_excerpt(data)
    assert len(excerpt) <= 200
    assert excerpt.isprintable() or not excerpt
    check_storable(excerpt)


def wave_sound(data: bytes) -> None:
    """A WAV file: its audio survives encoding and decoding, or an error is raised."""
    try:
        samples = decode_wav(data, 16_000)
    except RemoteModelError:
        return
    assert len(samples) <= 2 * len(data) + 64
    decoded = decode_wav(encode_wav(samples, 16_000), 16_000)
    assert decoded.tolist() == samples.tolist()


def chat_template(data: bytes) -> None:
    """The chat template of a model file: every template gives a prompt of bounded length."""
    source = data.decode("utf-8", "replace")
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    prompt = ChatPrompt("c", system="Be kind.", messages=(ChatMessage("user", "Hello"), ChatMessage("assistant", "Hi")))
    try:
        text = template.render(prompt)
    except TemplateError as error:
        raise AssertionError("a template's error was not handled") from error
    assert len(text) <= 3_000_000
