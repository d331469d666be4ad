"""Every command: its help text, suggestions, and errors in one line."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from trunkline.cli import main
from trunkline.cli.framework.commands import Command, Group
from trunkline.cli.main import SECTIONS, command_line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which has no settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    return tmp_path


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands and groups by their words."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, name
            yield from commands(child, (*path, name))


COMMANDS = dict(commands(command_line()))


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_explains_itself_with_examples(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = COMMANDS[words]
    assert isinstance(command, Command | Group)
    assert command.examples and all(f"trunkline {words}".rstrip() in each for each in command.examples)
    assert main.main([*words.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:" in text and command.examples[0] in text
    for param in command.params:
        described = param.help if isinstance(param, click.Option | click.Argument) else None
        assert described, f"{words} {param.name}"


@pytest.mark.parametrize("words", [words for words in COMMANDS if words])
def test_the_examples_are_valid_command_lines(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are parsed only."""
    command = COMMANDS[words]
    assert isinstance(command, Command | Group)
    for example in command.examples:
        line = example.partition(" | ")[0].partition(" < ")[0].partition(" > ")[0]
        arguments = [each for each in shlex.split(line) if not each.startswith("TRUNKLINE_")]
        assert arguments[0] == "trunkline", example
        parsed: click.Command = command_line()
        context, rest = click.Context(parsed, info_name="trunkline"), arguments[1:]
        while isinstance(parsed, click.Group):
            _, found, rest = parsed.resolve_command(context, rest)
            assert found is not None
            parsed = found
        parsed.make_context(parsed.name, rest)


def test_the_list_of_commands_needs_no_import_of_them() -> None:
    """`trunkline --help`, and completion, are fast."""
    heavy = {"pydantic", "sqlalchemy", "structlog", "rich", "asyncio", "numpy"}
    code = (
        "import sys; from trunkline.cli.main import main; main(['--help']); "
        f"print('imported', sorted({heavy} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "imported []"
    assert all(name in done.stdout for commands in SECTIONS.values() for name in commands)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["org", "create", " "], "trunkline: org create: NAME: takes a name (see `trunkline org create --help`)"),
        (["org", "create", "a\U000e0041"], "trunkline: org create: NAME: must have no line"),
        (["org", "create"], "trunkline: org create: NAME is missing (see"),
        (["org", "create", "x", "--balance", "nan"], "trunkline: org create: --balance: takes an amount"),
        (["org", "create", "x", "--plan", "gold"], "trunkline: org create: --plan: 'gold' is not one of"),
        (["org", "create", "x", "--max-calls", "0"], "trunkline: org create: --max-calls: takes a whole number"),
        (["org", "set", "x", "--prefixes", "+49,abc"], "trunkline: org set: --prefixes: takes prefixes"),
        (["org", "set", "x", "--no-cap", "--calls-per-minute", "9"], "trunkline: org set: --calls-per-minute and"),
        (["audit", "--since", "yesterday"], "trunkline: audit: --since: takes an ISO 8601"),
        (["sip", "trace"], "trunkline: sip trace: one of --call, --trunk, --all is missing"),
        (["key", "create"], "trunkline: key create: --org is missing"),
        (["server"], "trunkline: there is no command 'server': did you mean serve or user? (see `trunkline --help`)"),
        (["modles", "list"], "trunkline: there is no command 'modles': did you mean models or nodes?"),
        (["org", "creat", "x"], "trunkline: org: there is no command 'creat': did you mean create? (see"),
        (["trunk", "list", "--jsno"], "trunkline: trunk list: there is no option --jsno: did you mean --json?"),
        (["org", "list", "acme"], "trunkline: org list: Got unexpected extra argument (acme) (see"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_reported_in_one_line(
    folder: Path, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main.main(arguments)
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    assert err.startswith(complaint) and err.count("\n") == 1, err
    assert list(folder.iterdir()) == []


def test_without_a_command_the_help_text_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main.main([])
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "") and err.startswith("Usage: trunkline")


@pytest.mark.parametrize("words", [("key", "list", "--org", "Lihgthouse"), ("audit", "--org", "lighthouse")])
def test_an_unknown_organization_is_reported_with_a_similar_one(
    folder: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("Lighthouse", "Harbour"):
        assert main.main(["org", "create", name]) == 0
    capsys.readouterr()
    assert main.main(words) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        f"trunkline: there is no organization {words[-1]!r}: see `trunkline org list`; did you mean Lighthouse?\n",
    )


def test_an_unusable_data_directory_is_reported_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("TRUNKLINE_DATA_DIR", "file")
    assert main.main(["org", "list"]) == 1
    assert capsys.readouterr() == ("", "trunkline: data_dir file cannot be used: File exists\n")


def test_config_may_precede_and_follow_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other.toml").write_text('data_dir = "elsewhere"\n')
    assert main.main(["--config", "other.toml", "org", "create", "Bay"]) == 0
    assert main.main(["org", "list", "--json", "--config", "other.toml"]) == 0
    assert '"name": "Bay"' in capsys.readouterr().out
    assert main.main(["org", "list", "--config", "none.toml"]) == 1
    assert capsys.readouterr().err == "trunkline: settings file none.toml does not exist\n"


def test_every_command_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/command-line.md").read_text()
    leaves = [words for words, command in COMMANDS.items() if not isinstance(command, click.Group)]
    assert not [words for words in leaves if f"`trunkline {words}`" not in page]
