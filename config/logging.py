"""Logging: structlog events and the records of libraries, one line each, as text (console) or JSON (json)."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, Literal, TextIO

import structlog

from config.log_writer import LogWriter

NOISY: Final = ("aiosqlite", "alembic", "asyncio", "aiohttp.access", "sqlalchemy")
"""Libraries whose debug and info lines are not about calls."""


def configure(
    level: Literal["debug", "info", "warning", "error"],
    form: Literal["console", "json"],
    stream: TextIO | LogWriter | None = None,
) -> None:
    """Send every structlog event and every stdlib log record at `level` or above to `stream` (standard error)."""
    stream = stream if stream is not None else sys.stderr
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.PositionalArgumentsFormatter(), *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(form, stream),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(True)


def _rendering(form: Literal["console", "json"], stream: TextIO | LogWriter) -> list[Any]:
    """Returns the last processors. In JSON a stack trace is one field; on a console it follows its line."""
    if form == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=True)]
    colors = stream.isatty()
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
