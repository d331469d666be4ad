"""The retention and redaction of stored calls: arguments of `trunkline org set`, and their values in `org list`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from storage.accounts.organizations import Organization

DATA_KINDS: Final = ("recordings", "transcripts", "calls")
FOREVER: Final = "forever"
MAX_DAYS: Final = 36500


def add_arguments(change: argparse.ArgumentParser) -> None:
    """Add the arguments of `org set`."""
    data = {
        "recordings": "recordings",
        "transcripts": "transcripts, summaries, context variables, SIP messages and webhooks",
        "calls": "calls with all their data",
    }
    for kind in DATA_KINDS:
        change.add_argument(
            f"--keep-{kind}-days", type=_days, metavar=f"N|{FOREVER}", help=f"retention of {data[kind]}, in days"
        )
    numbers = "redact card, account and identity numbers in stored calls"
    change.add_argument("--redact", choices=("on", "off"), help=numbers)
    change.add_argument("--redact-dialled", choices=("on", "off"), help="redact turns of DTMF digits in stored calls")


def changes(options: argparse.Namespace) -> dict[str, Any]:
    """The organization's fields that the arguments change."""
    days = {f"keep_{kind}_days": getattr(options, f"keep_{kind}_days") for kind in DATA_KINDS}
    switches = {"redact": options.redact, "redact_dialled": options.redact_dialled}
    return {
        **{name: None if value == FOREVER else value for name, value in days.items() if value is not None},
        **{name: value == "on" for name, value in switches.items() if value is not None},
    }


def describe(organization: Organization) -> str:
    """An organization's retention and redaction, in `org list`."""
    days = (organization.keep_recordings_days, organization.keep_transcripts_days, organization.keep_calls_days)
    keeps = [f"{kind} {FOREVER if each is None else f'{each} d'}" for kind, each in zip(DATA_KINDS, days, strict=True)]
    redaction = {"numbers": organization.redact, "dialled digits": organization.redact_dialled}
    redacts = " and ".join(name for name, is_on in redaction.items() if is_on)
    return f"keeps {', '.join(keeps)}  redacts {redacts or 'nothing'}"


def _days(text: str) -> int | str:
    if text == FOREVER:
        return text
    if not text.isascii() or not text.isdecimal() or int(text) > MAX_DAYS:
        raise argparse.ArgumentTypeError(f"takes a number of days from 0 to {MAX_DAYS}, or {FOREVER}")
    return int(text)
