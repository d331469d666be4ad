"""docs/reference/log-events.md has one row for each event that the code logs, with its levels and fields."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from sipcore.security import source_guard
from tests.log_events import LogEvent, first_arguments, from_source

PAGE = Path(__file__).parent.parent / "docs/reference/log-events.md"
ROW = re.compile(r"^\| `([a-z_.]+)` \| ([a-z, ]+) \| (.*?)\| (.+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """The page's row of an event."""

    event: str
    levels: frozenset[str]
    fields: frozenset[str]


def rows() -> list[Row]:
    return [
        Row(event, frozenset(levels.split(", ")), frozenset(re.findall(r"`([a-z_]+)`", fields)))
        for event, levels, fields, _ in ROW.findall(PAGE.read_text())
    ]


@pytest.fixture(scope="module")
def logged() -> dict[str, LogEvent]:
    """The events of the code, including those with computed names: the counters of the guard are logged as
    `sip.{kind}`, and a class that logs a given name has it as its first argument."""
    source = from_source()
    for name in source.computed:
        if name.within is None:
            assert name.expression == "f'sip.{kind}'", f"unknown names of {name.expression}"
            events = {f"sip.{kind}" for kind in source_guard.drop_counts()}
        else:
            events = first_arguments(name.within)
        assert events, f"unknown names of {name.expression}"
        for event in events:
            source.events[event].levels |= name.levels
            source.events[event].fields |= name.fields
    return dict(source.events)


def test_each_event_has_one_row_and_each_row_an_event(logged: dict[str, LogEvent]) -> None:
    named = Counter(row.event for row in rows())
    assert {event for event, count in named.items() if count > 1} == set()
    assert set(named) - set(logged) == set()
    assert set(logged) - set(named) == set()


def test_every_line_of_a_table_is_a_row() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(lines) == len(rows()) > 200


def test_rows_name_levels_that_events_have(logged: dict[str, LogEvent]) -> None:
    wrong = {row.event: row.levels for row in rows() if not row.levels <= logged[row.event].levels}
    assert wrong == {}


def test_rows_name_the_fields_of_events(logged: dict[str, LogEvent]) -> None:
    missing = {row.event: logged[row.event].fields - row.fields for row in rows()}
    assert {event: fields for event, fields in missing.items() if fields} == {}
