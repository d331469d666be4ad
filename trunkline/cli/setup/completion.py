"""`trunkline completion`: scripts that complete commands and options in shells."""

from __future__ import annotations

from typing import Final

import click

from trunkline.cli.framework.commands import Command, Invocation

_SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_TRUNKLINE_COMPLETE"
"""The environment variable with which a script asks for completions."""


@click.command(
    cls=Command,
    takes="invocation",
    examples=(
        "trunkline completion bash > /etc/bash_completion.d/trunkline",
        'trunkline completion zsh > "${fpath[1]}/_trunkline"',
        "trunkline completion fish > ~/.config/fish/completions/trunkline.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS), metavar="SHELL", help="bash, zsh or fish")
def completion(_: Invocation, shell: str) -> int:
    """Print the script that completes commands and options in a shell.

    To try it in the current shell: `eval "$(trunkline completion bash)"`.
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(click.Group(), {}, "trunkline", VARIABLE).source())
    return 0
