"""Questions before a deletion."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from config.errors import StartupError

yes_option: Callable[[Any], Any] = click.option("--yes", is_flag=True, help="delete without asking")


def confirm_deletion(what: str, consequences: Sequence[str], *, yes: bool) -> None:
    """Say on stderr what goes with a deletion, and ask unless `yes`. Raises `StartupError` without consent."""
    for line in consequences:
        print(f"note: {line}", file=sys.stderr)
    if yes:
        return
    if not sys.stdin.isatty():
        raise StartupError(f"{what} is not deleted: there is no terminal to ask on; --yes deletes it")
    if not click.confirm(f"Delete {what}?", err=True):
        raise StartupError(f"{what} is not deleted")
