"""Validation of long texts takes linear time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import pytest
from pydantic import TypeAdapter, ValidationError

from api.http.duplicate_json_keys import duplicate_key
from api.schemas.addresses import HttpTemplate
from api.schemas.agents import AgentSettings
from api.schemas.base import StrictPlaceholders, ValidPlaceholders
from calls.call_record.context_variables import substitute

PIECES = ("{{", "{{ ", "{{a", "{{a ", "{{a}}", "{{a}", "{ {", "}}", " ", "a")
LENGTH = 1_000_000
BOUND_S = 20
"""Far more than a check in linear time takes; one in quadratic time takes hours."""


@contextmanager
def _bounded() -> Iterator[None]:
    def end(*_: object) -> NoReturn:
        raise TimeoutError("not linear")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(BOUND_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("kind", [Annotated[str, ValidPlaceholders], Annotated[str, StrictPlaceholders], HttpTemplate])
def test_placeholders_are_validated_in_linear_time(kind: Any, piece: str) -> None:
    adapter = TypeAdapter(kind)
    for text in (
        piece * (LENGTH // len(piece)),
        "{{" + piece * (LENGTH // len(piece)),
        "https://a/" + piece * (LENGTH // len(piece)),
    ):
        with _bounded():
            try:
                adapter.validate_python(text)
            except ValidationError as error:
                assert error.error_count() == 1


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":"' + b"\\\\" * 5_000_000 + b'"}',
        b'{"a":"' + b'\\"' * 500_000 + b'"}',
        b'{"a":"' + b"x" * 28_000_000 + b'"}',
        b'{"a":' + b" " * 10_000_000 + b"1}",
        b'{"a":[' + b"1," * 500_000 + b"1]}",
        b'{"a":1' + b',"b":1' * 3_000_000 + b"}",
    ],
    ids=["backslashes", "quotation marks", "a file", "spaces", "a list", "repetitions"],
)
def test_duplicate_keys_are_found_in_linear_time(text: bytes) -> None:
    with _bounded():
        assert duplicate_key(text) == (["b"] if b'"b"' in text else None)


@pytest.mark.parametrize("piece", PIECES)
def test_placeholders_are_replaced_in_linear_time(piece: str) -> None:
    with _bounded():
        substitute("{{" + piece * (LENGTH // len(piece)), {"a": "b"}, call_id="c")


@pytest.mark.parametrize(
    ("text", "accepted"),
    [("a } } {{ b", True), ("{{a}} and {{", True), ("}} {{ {{", True), ("{{ }}", False), ("{{ {{a}} }}", False)],
)
def test_two_unclosed_braces_in_a_prompt_are_text(text: str, accepted: bool) -> None:
    try:
        AgentSettings.model_validate({"systemPrompt": text, "agentGreeting": text})
    except ValidationError as error:
        assert not accepted, error
    else:
        assert accepted
