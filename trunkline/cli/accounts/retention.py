"""The retention and redaction of stored calls: options of `trunkline org set`, and their values in `org list`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from trunkline.cli.framework.argument_types import Value

if TYPE_CHECKING:
    from storage.accounts.organizations import Organization

DATA_KINDS: Final = ("recordings", "transcripts", "calls")
FOREVER: Final = "forever"
MAX_DAYS: Final = 36500


def _days(text: str) -> int | str:
    if text == FOREVER:
        return text
    if not text.isascii() or not text.isdecimal() or int(text) > MAX_DAYS:
        raise ValueError(f"takes a number of days from 0 to {MAX_DAYS}, or {FOREVER}")
    return int(text)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options of `org set`."""
    data = {
        "recordings": "recordings",
        "transcripts": "transcripts, summaries, context variables, SIP messages and webhooks",
        "calls": "calls with all their data",
    }
    switch = click.Choice(["on", "off"])
    added = [
        *(
            click.option(
                f"--keep-{kind}-days", type=Value("days", _days), metavar=f"N|{FOREVER}",
                help=f"retention of {data[kind]}, in days",
            )
            for kind in DATA_KINDS
        ),
        click.option(
            "--redact", type=switch, help="redact card, account and identity numbers in stored calls"
        ),
        click.option("--redact-dialled", type=switch, help="redact turns of DTMF digits in stored calls"),
    ]  # fmt: skip
    for option in reversed(added):
        command = option(command)
    return command


def changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The organization's fields that the options change."""
    days = {f"keep_{kind}_days": given[f"keep_{kind}_days"] for kind in DATA_KINDS}
    switches = {"redact": given["redact"], "redact_dialled": given["redact_dialled"]}
    return {
        **{name: None if value == FOREVER else value for name, value in days.items() if value is not None},
        **{name: value == "on" for name, value in switches.items() if value is not None},
    }


def describe_days(organization: Organization) -> str:
    """An organization's retention, in `org list`."""
    days = (organization.keep_recordings_days, organization.keep_transcripts_days, organization.keep_calls_days)
    keeps = [f"{kind} {FOREVER if each is None else f'{each} d'}" for kind, each in zip(DATA_KINDS, days, strict=True)]
    return ", ".join(keeps)


def describe_redaction(organization: Organization) -> str:
    """What is redacted in an organization's calls, in `org list`."""
    redaction = {"numbers": organization.redact, "dialled digits": organization.redact_dialled}
    return " and ".join(name for name, is_on in redaction.items() if is_on) or "nothing"
