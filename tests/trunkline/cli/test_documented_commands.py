"""The command lines that the documentation shows exist, with all their options. They are resolved, not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from trunkline.cli.framework.commands import Command
from trunkline.cli.main import command_line
from trunkline.replay.settings import NAMES

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"```\w*\n(.*?)```|`([^`]+)`", re.DOTALL)
COMMAND = re.compile(r"(?:^|[\s(;&|])(?:\.venv/bin/)?(trunkline (?!trunkline)[a-z-][^\n|;&<>)#`]*)")


def documented(page: Path) -> Iterator[str]:
    """Each command line in the page's code, up to the first redirection, pipe or comment."""
    for block, inline in CODE.findall(page.read_text()):
        yield from COMMAND.findall(block or " ".join(inline.split()))


def resolved(line: str) -> tuple[click.Command, list[str]]:
    """The command of a line and its arguments. Raises `click.ClickException` if it does not exist."""
    command: click.Command = command_line()
    rest = shlex.split(line.replace("...", ""))[1:]
    while rest[:1] == ["--config"]:
        rest = rest[2:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        _, found, rest = command.resolve_command(click.Context(command), rest)
        assert found is not None, line
        command = found
    return command, rest


def wrong_options(line: str) -> list[str]:
    """The options of a line that its command does not have."""
    command, rest = resolved(line)
    known = {each for param in command.params for each in (*param.opts, *param.secondary_opts)}
    known |= {"--help", "-h", "--version", "--config"}
    return [each for each in rest if each.startswith("--") and each.partition("=")[0] not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_command_lines_of_a_page_exist(page: Path) -> None:
    assert {line: wrong for line in documented(page) if (wrong := wrong_options(line))} == {}


def test_replays_of_examples_change_settings_that_exist() -> None:
    replay, _ = resolved("trunkline replay")
    assert isinstance(replay, Command)
    lines = [*replay.examples, *(line for page in PAGES for line in documented(page) if "trunkline replay" in line)]
    named = {name for line in lines for name in re.findall(r"--set ([\w]+)=", line)}
    assert len(named) > 2
    assert named <= NAMES.keys()
