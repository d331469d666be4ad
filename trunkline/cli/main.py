"""The `trunkline` command: puts the groups of commands together, and runs a command, which prints one line and returns
1 if it fails."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import click

from config.errors import Invalid, NotGranted, TrunklineError
from trunkline.cli.framework.commands import Invocation, LazyGroup, config_option, usage_error_line
from trunkline.cli.terminal.streams import shows_colour

INTERRUPTED: Final = 130
"""The exit status of a command that SIGINT ended."""
_CLI: Final = "trunkline.cli"
SECTIONS: Final = {
    "Server": {
        "serve": (f"{_CLI}.operation.serve:serve", "run the SIP server and the API until SIGTERM or SIGINT"),
        "demo": (
            f"{_CLI}.operation.serve:demo",
            "start the server, let scripted callers call it, and show the calls",
        ),
        "check": (f"{_CLI}.operation.check:check", "check settings, models, ports and the audio path"),
        "doctor": (
            f"{_CLI}.operation.check:doctor",
            "find out why calls do not come through, with a remedy for each cause",
        ),
        "sip": (f"{_CLI}.operation.sip:sip", "show SIP messages, trunks and calls of the running server"),
        "nodes": (f"{_CLI}.operation.nodes:nodes", "list the servers that use one PostgreSQL database"),
        "replay": (
            f"{_CLI}.operation.replay:replay",
            "replay a recorded call with other turn-taking settings, and compare the turns",
        ),
        "backup": (f"{_CLI}.operation.backup:backup", "write all stored data to one file, also while the server runs"),
        "restore": (
            f"{_CLI}.operation.backup:restore",
            "restore a backup; no server may be running on the data directory",
        ),
        "database": (f"{_CLI}.operation.database:database", "copy the database to another file or server"),
    },
    "Organizations": {
        "org": (f"{_CLI}.accounts.org:org", "manage organizations, their limits, quotas and balances"),
        "key": (f"{_CLI}.accounts.key:key", "manage API keys"),
        "user": (f"{_CLI}.accounts.user:user", "manage the users of the dashboard"),
        "trunk": (f"{_CLI}.operation.trunk:trunk", "manage the trunks that organizations may use"),
        "audit": (
            f"{_CLI}.accounts.audit:audit",
            "show every request for an outbound call, and the changes that operators made",
        ),
    },
    "Setup": {
        "config": (f"{_CLI}.setup.config:config", "show, sample and validate the settings"),
        "web": (f"{_CLI}.setup.web:web", "make the certificate for HTTPS, which a browser's microphone needs"),
        "completion": (
            f"{_CLI}.setup.completion:completion",
            "print the script that completes commands in bash, zsh or fish",
        ),
    },
    "Voice agents": {
        "agent": (f"{_CLI}.resources.agent:agent", "manage voice agents"),
        "call": (f"{_CLI}.resources.call:call", "list, place, watch and hang up calls"),
        "document": (f"{_CLI}.resources.document:document", "manage the documents that agents search"),
        "number": (f"{_CLI}.resources.number:number", "manage phone numbers, and print what a PBX needs for them"),
        "tool": (f"{_CLI}.resources.tool:tool", "manage the tools that agents use"),
        "webhook": (
            f"{_CLI}.resources.webhook:webhook",
            "manage the addresses that get the events of all calls of an organization",
        ),
    },
    "Models": {
        "models": (f"{_CLI}.model_files.models:models", "list, download, check and import models"),
    },
}
"""The commands by the heading of the help text: place and line of help."""


def _version_option() -> click.Option:
    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            from trunkline.cli.setup.version import print_version

            print_version(ctx, param, value)

    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show,
        help="show the versions of Trunkline and of its parts",
    )  # fmt: skip


def command_line() -> LazyGroup:
    """The whole command line."""
    return LazyGroup(
        "trunkline",
        sections=SECTIONS,
        params=[config_option(), _version_option()],
        help="SIP-native voice AI agent server.",
        examples=("trunkline serve", "trunkline org create acme", "trunkline key create --org acme"),
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status of the process. Raises `SystemExit` (2) for invalid arguments."""
    try:
        result = command_line().main(
            arguments, "trunkline", standalone_mode=False, obj=Invocation(), color=shows_colour(sys.stdout)
        )
        return _run(result) if inspect.iscoroutine(result) else int(result or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True, color=shows_colour(sys.stderr))
        raise SystemExit(2) from None
    except click.ClickException as error:
        print(usage_error_line(error), file=sys.stderr)
        raise SystemExit(2) from None
    except (Invalid, NotGranted) as error:
        for problem in error.problems:
            print(f"trunkline: {problem.field}: {problem.message}", file=sys.stderr)
        if not error.problems:
            print(f"trunkline: {error}", file=sys.stderr)
        return 1
    except TrunklineError as error:
        for line in str(error).splitlines():
            print(f"trunkline: {line}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED


def _run(command: Coroutine[Any, Any, int]) -> int:
    """Run a command that needs an event loop."""
    import asyncio

    import uvloop

    try:
        return uvloop.run(command)
    except asyncio.CancelledError:
        return INTERRUPTED
