"""`trunkline check`: checks a machine before a server starts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from trunkline.cli.framework.commands import Command, json_option
from trunkline.cli.terminal.progress import progress
from trunkline.cli.terminal.streams import shows_colour, shows_marks
from trunkline.cli.terminal.table import print_json

if TYPE_CHECKING:
    from config.settings import Settings
    from trunkline.check.check import CheckResult


@click.command(cls=Command, examples=("trunkline check", "trunkline check --config /etc/trunkline.toml --json"))
@json_option
async def check(settings: Settings, as_json: bool) -> int:
    """Check settings, models, ports and the audio path, and print one line for each.

    The exit status is 1 if a check fails.
    """
    from trunkline.check.check import check as run

    failed = False
    with progress("items") as display:
        async for result in run(settings, lambda name, done, total: display.show(f"checking {name}", done, total)):
            failed |= not result.ok
            if as_json:
                print_json([{"check": result.name, "ok": result.ok, "lines": result.lines}])
            else:
                print_result(result)
    return 1 if failed else 0


def print_result(result: CheckResult) -> None:
    """Print the lines of a check; on a terminal with a mark."""
    mark = "ok    " if result.ok else "FAIL  "
    if shows_marks(sys.stdout):
        mark = "✓ " if result.ok else "✗ "
    if shows_colour(sys.stdout):
        mark = click.style(mark, fg="green" if result.ok else "red")
    for number, line in enumerate(result.lines):
        print(f"{mark}{'' if number else result.name:15} {line}", flush=True)
