"""Logging: one line for each event of the product and of libraries."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from config.logging import configure


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level, configuration = root.handlers[:], root.level, structlog.get_config()
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**configuration)


def test_json_has_one_object_a_line(stream: io.StringIO) -> None:
    configure("info", "json", stream)
    structlog.get_logger().info("call.answered", call_id="c1", text="two\nlines")
    logging.getLogger("library").warning("careful: %s", "x", extra={"more": 1})
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger().exception("call.failed", call_id="c1")
    first, second, third = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["call_id"], first["level"]) == ("call.answered", "c1", "info")
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["level"], second["more"]) == ("careful: x", "warning", 1)
    assert "ValueError: broken" in third["exception"]


def test_lines_below_the_level_are_not_written(stream: io.StringIO) -> None:
    configure("warning", "json", stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("library").info("quiet")
    structlog.get_logger().warning("loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_a_console_line_has_the_event_and_its_fields(stream: io.StringIO) -> None:
    configure("debug", "console", stream)
    structlog.get_logger().info("call.answered", call_id="c1", reason="two\nlines")
    (line,) = stream.getvalue().splitlines()
    assert "call.answered" in line
    assert "call_id=c1" in line
    assert "\x1b" not in line


def test_noisy_libraries_are_quiet_at_debug(stream: io.StringIO) -> None:
    configure("debug", "json", stream)
    logging.getLogger("aiosqlite").debug("executing")
    logging.getLogger("sqlalchemy.engine").info("SELECT")
    structlog.get_logger().debug("ours")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["ours"]


def test_logging_can_be_configured_again(stream: io.StringIO) -> None:
    for _ in range(2):
        configure("info", "json", stream)
    structlog.get_logger().info("once")
    assert len(stream.getvalue().splitlines()) == 1
