"""`trunkline serve` and `trunkline demo`: run the server."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from trunkline.cli.framework.commands import Command

if TYPE_CHECKING:
    from config.settings import Settings


@contextmanager
def _without_gc() -> Iterator[None]:
    """For imports: all that they create stays, and the search for garbage in it takes a quarter of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@click.command(
    cls=Command,
    examples=(
        "trunkline serve",
        "trunkline serve --config /etc/trunkline.toml",
        "TRUNKLINE_API__PORT=8081 trunkline serve",
    ),
)
async def serve(settings: Settings) -> int:
    """Run the SIP server and the API until SIGTERM or SIGINT.

    Logs `ready` once calls and requests are accepted. SIGTERM lets live calls end first, a second SIGINT ends them at
    once.
    """
    with _without_gc():
        from config import logging as logs
        from config.log_writer import LogWriter
        from trunkline.server.startup import serve as run

    with LogWriter(sys.stderr) as log_writer:
        logs.configure(settings.log_level, settings.log_format, log_writer)
        await run(settings)
    return 0


@click.command(cls=Command, examples=("trunkline demo", "trunkline demo --keep-serving"))
@click.option("--keep-serving", is_flag=True, help="keep the server running after the calls")
async def demo(settings: Settings, keep_serving: bool) -> int:
    """Start the server, let scripted callers call it, and show the calls."""
    with _without_gc():
        from trunkline.demo.demo import demo as run

    return await run(settings, keep_serving=keep_serving)
