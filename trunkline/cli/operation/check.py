"""`trunkline check` and `trunkline doctor`: check a machine, before and after calls fail."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

import click

from trunkline.cli.framework.commands import Command, json_option
from trunkline.cli.terminal.progress import progress
from trunkline.cli.terminal.streams import shows_colour, shows_marks
from trunkline.cli.terminal.table import print_json

if TYPE_CHECKING:
    from config.settings import Settings
    from trunkline.check.check import CheckResult, OnCheck

_MARKS: Final = {"ok": ("✓ ", "green"), "note": ("! ", "yellow"), "FAIL": ("✗ ", "red")}


@click.command(cls=Command, examples=("trunkline check", "trunkline check --config /etc/trunkline.toml --json"))
@json_option
async def check(settings: Settings, as_json: bool) -> int:
    """Check settings, models, ports and the audio path, and print one line for each.

    Measures the models, estimates the capacity, and places a test call. The exit status is 1 if a check fails.
    """
    from trunkline.check.check import check as run

    return await _print_results(lambda on_check: run(settings, on_check), as_json=as_json)


@click.command(cls=Command, examples=("trunkline doctor", "trunkline doctor --json"))
@json_option
async def doctor(settings: Settings, as_json: bool) -> int:
    """Find out why calls do not come through, and print one line with a remedy for each cause.

    Checks addresses and NAT, ports, certificates, the clock, priority, disk space and whether PBXs answer; it takes
    seconds, also beside a running server. The exit status is 1 if a check fails; a note is an advice.
    """
    from trunkline.check.check import doctor as run

    return await _print_results(lambda on_check: run(settings, on_check), as_json=as_json)


async def _print_results(run: Callable[[OnCheck], AsyncIterator[CheckResult]], *, as_json: bool) -> int:
    failed = False
    with progress("items", line_interval_s=None) as display:
        async for result in run(lambda name, done, total: display.show(f"checking {name}", done, total)):
            failed |= result.state == "FAIL"
            if as_json:
                print_json([{"check": result.name, "state": result.state, "lines": result.lines}])
            else:
                _print_result(result)
    return 1 if failed else 0


def _print_result(result: CheckResult) -> None:
    mark, colour = _MARKS[result.state]
    if not shows_marks(sys.stdout):
        mark = f"{result.state:6}"
    if shows_colour(sys.stdout):
        mark = click.style(mark, fg=colour)
    for number, line in enumerate(result.lines):
        print(f"{mark}{'' if number else result.name:15} {line}", flush=True)
