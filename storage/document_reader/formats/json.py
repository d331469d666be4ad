"""JSON: paths and values. An object of moderate size is one row; a larger one is divided under headings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from storage.document_reader.base.blocks import Block, heading, paragraph, row
from storage.document_reader.base.errors import UnreadableDocument

_ROW_VALUES: Final = 40
_ROW_CHARACTERS: Final = 1_200
"""Characters of values in one row; an object with more, or with more values than `_ROW_VALUES`, is divided."""


def blocks_from_json(text: str) -> Iterator[Block]:
    """Returns the values with their names. Numbers stay as they are written; several JSON values may follow each other,
    one on a line."""
    return _walk(_parse(text), 1)


def _parse(text: str) -> Any:
    try:
        return _value(text)
    except json.JSONDecodeError as error:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) < 2:
            raise _invalid(error) from error
        try:
            return [_value(line) for line in lines]
        except json.JSONDecodeError:
            raise _invalid(error) from error


def _value(text: str) -> Any:
    return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)


def _invalid(error: json.JSONDecodeError) -> UnreadableDocument:
    return UnreadableDocument(f"The JSON is not valid at line {error.lineno}, column {error.colno}")


def _walk(value: Any, level: int) -> Iterator[Block]:
    """One row for a moderate value, else its members one by one."""
    fields = _row_of(value)
    if fields is not None:
        yield _row(fields)
    elif isinstance(value, dict):
        yield from _walk_members(value, level)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, level)
    else:
        yield paragraph(_text(value))


def _walk_members(members: dict[str, Any], level: int) -> Iterator[Block]:
    """Rows of the plain members, up to a row's length, and of each moderate one; then the large ones, each under a
    heading with its name."""
    plain: list[tuple[str, str]] = []
    large: list[tuple[str, Any]] = []
    for name, member in members.items():
        fields = _row_of(member, name)
        if fields is None:
            large.append((name, member))
        elif isinstance(member, dict):
            yield _row(fields)
        elif _is_moderate([*plain, *fields]):
            plain += fields
        else:
            yield _row(plain)
            plain = fields
    yield _row(plain)
    for name, member in large:
        yield heading(name, level)
        yield from _walk(member, level + 1)


def _row(fields: Sequence[tuple[str, str]]) -> Block:
    return row([name for name, _ in fields], [text for _, text in fields])


def _row_of(value: Any, name: str = "") -> list[tuple[str, str]] | None:
    """All paths and values below `value`, prefixed with `name`; None when they are too many for one row, or include a
    list that has its own rows."""
    fields: list[tuple[str, str]] = []
    for path, text in _fields(value, name):
        if text is None:
            return None
        fields.append((path, text))
        if not _is_moderate(fields):
            return None
    return fields


def _is_moderate(fields: Sequence[tuple[str, str]]) -> bool:
    return len(fields) <= _ROW_VALUES and sum(len(text) for _, text in fields) <= _ROW_CHARACTERS


def _fields(value: Any, path: str) -> Iterator[tuple[str, str | None]]:
    """Paths and texts; None as the text of a list that has its own rows: a long one, or one of several objects or
    lists."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _fields(member, f"{path}.{name}" if path else name)
    elif not isinstance(value, list):
        yield path, _text(value)
    elif len(value) == 1:
        yield from _fields(value[0], path)
    elif len(value) > _ROW_VALUES or any(isinstance(item, (dict, list)) for item in value):
        yield path, None
    else:
        yield path, ", ".join(filter(None, map(_text, value)))


def _text(value: Any) -> str:
    """Numbers come as strings from the parser; null gives no text."""
    return value if isinstance(value, str) else {True: "true", False: "false", None: ""}[value]
