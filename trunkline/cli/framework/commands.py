"""Commands and groups of commands: settings, examples, errors of usage, and modules that are imported on use."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from config.settings import Settings

MAX_HELP_WIDTH: Final = 100
_NEGATIVE_NUMBER: Final = re.compile(r"-[0-9.]")


class Invocation:
    """One run of the command line."""

    def __init__(self, settings: Settings | None = None) -> None:
        """`settings` replace those of the file and of the environment, for tests."""
        self.config: Path | None = None
        """The settings file that `--config` names."""
        if settings is not None:
            self.settings = settings

    @cached_property
    def settings(self) -> Settings:
        """The settings; reading them also configures the log and the umask. Raises `StartupError`."""
        from config import logging as logs
        from config.settings import Settings
        from storage.database.file_permissions import UMASK

        os.umask(UMASK)
        settings = Settings.load(self.config, os.environ)
        logs.configure(settings.log_level, settings.log_format)
        return settings


class _HelpFormatter(click.HelpFormatter):
    """Headings are bold on a terminal."""

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{click.style(f'{heading}:', bold=True)}\n")


class _Context(click.Context):
    formatter_class = _HelpFormatter


def _set_config(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.ensure_object(Invocation).config = value


def config_option(*, hidden: bool = False) -> click.Option:
    """`--config FILE`, which may precede or follow the command's name."""
    return click.Option(
        ["--config"], metavar="FILE", type=click.Path(path_type=Path), callback=_set_config, expose_value=False,
        hidden=hidden, help="settings file (default: ./trunkline.toml, if it exists)",
    )  # fmt: skip


class Command(click.Command):
    """A command. Its callback gets the settings (`takes="settings"`) or the `Invocation`, then its parameters. It
    returns the exit status, or a coroutine that does."""

    context_class = _Context

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str],
        takes: Literal["settings", "invocation"] = "settings",
        exclusive: Sequence[Sequence[str]] = (),
        exactly_one: Sequence[str] = (),
        **more: Any,
    ) -> None:
        """`examples`: complete command lines for the help text. `exclusive`: names of options of which at most one may
        be given; `exactly_one`: those of which one must be."""
        super().__init__(*args, **more)
        self.examples = examples
        self._takes = takes
        self._exclusive = [*exclusive, *([exactly_one] if exactly_one else [])]
        self._exactly_one = exactly_one
        self.params.append(config_option(hidden=True))

    def invoke(self, ctx: click.Context) -> Any:
        """Call the callback; returns what it returns."""
        for names in self._exclusive:
            sources = {name: ctx.get_parameter_source(name) for name in names}
            given = [_option_of(name) for name, source in sources.items() if source is ParameterSource.COMMANDLINE]
            if len(given) > 1:
                raise click.UsageError(f"{' and '.join(given)} exclude each other", ctx)
            if not given and names is self._exactly_one:
                raise click.UsageError(f"one of {', '.join(map(_option_of, names))} is missing", ctx)
        invocation = ctx.ensure_object(Invocation)
        assert self.callback is not None
        return ctx.invoke(self.callback, invocation.settings if self._takes == "settings" else invocation, **ctx.params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. A negative number is an argument, not an option."""
        if any(_NEGATIVE_NUMBER.match(each) for each in args):
            ctx.ignore_unknown_options = True
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        _write_examples(self.examples, formatter)


class Group(click.Group):
    """A group of commands in one module."""

    context_class = _Context
    command_class = Command
    group_class = type

    def __init__(self, *args: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self.examples = examples

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order of their declaration."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with the first paragraph of their help texts."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_paragraph(command)) for name, command in self.commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        _write_examples(self.examples, formatter)


def _first_paragraph(command: click.Command) -> str:
    text = " ".join((command.help or "").partition("\n\n")[0].split()).removesuffix(".")
    return text[:1].lower() + text[1:]


def _write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class LazyGroup(Group):
    """A group whose commands are in modules of their own, each imported when its command is used: `key create` does not
    wait for PJSIP and the models, and `--help` waits for nothing."""

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]], **more: Any) -> None:
        """`sections`: by heading, the commands with their place (`module:attribute`) and a line of help."""
        super().__init__(*args, **more)
        self._sections = sections
        self._places = {name: place for commands in sections.values() for name, (place, _) in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; returns None if there is none of this name."""
        if cmd_name not in self._places:
            return None
        module, _, attribute = self._places[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first argument. Raises `NoSuchCommand` with similar names."""
        if args[0] not in self._places and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self._places, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their lines of help, without an import."""
        width = max(map(len, self._places))
        for heading, commands in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])


def _option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="print one JSON object per line"
)


def usage_error_line(error: click.ClickException) -> str:
    """An error of the arguments in one line: the command, the argument and the remedy."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path.partition(" ")[2] if context is not None else ""
    message = " ".join(_message(error).split()).removesuffix(".")
    help_command = " ".join(["trunkline", *([command] if command else []), "--help"])
    return f"trunkline: {f'{command}: ' if command else ''}{message} (see `{help_command}`)"


def _message(error: click.ClickException) -> str:
    match error:
        case click.MissingParameter(param=click.Parameter() as param, ctx=ctx):
            more = param.type.get_missing_message(param, ctx) if ctx is not None else None
            return f"{_hint(param, ctx)} is missing{f': {more}' if more else ''}"
        case click.BadParameter(param=click.Parameter() as param, ctx=ctx):
            return f"{_hint(param, ctx)}: {error.message}"
        case click.exceptions.NoSuchCommand():
            return f"there is no command {error.command_name!r}{_similar(error.possibilities)}"
        case click.NoSuchOption():
            return f"there is no option {error.option_name}{_similar(error.possibilities)}"
    return error.format_message()


def _similar(names: Sequence[str] | None) -> str:
    return f": did you mean {' or '.join(names)}?" if names else ""


def _hint(param: click.Parameter, ctx: click.Context | None) -> str:
    if isinstance(param, click.Argument):
        return param.human_readable_name
    return max(param.opts, key=len)
