"""What `trunkline org` takes and shows of how long calls are kept, and of what is hidden in them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from storage.accounts.organizations import Organization

DATA_KINDS: Final = ("recordings", "transcripts", "calls")
FOR_EVER: Final = "forever"
MOST_DAYS: Final = 36500


def add_arguments(change: argparse.ArgumentParser) -> None:
    """Of `org set`."""
    what = {
        "recordings": "recordings",
        "transcripts": "transcripts, summaries, context variables, SIP messages and webhooks",
        "calls": "calls at all",
    }
    for kind in DATA_KINDS:
        change.add_argument(
            f"--keep-{kind}-days", type=_days, metavar=f"N|{FOR_EVER}", help=f"how long {what[kind]} are kept"
        )
    numbers = "hide numbers of cards, accounts and persons in what is stored of calls"
    change.add_argument("--redact", choices=("on", "off"), help=numbers)
    change.add_argument("--redact-dialled", choices=("on", "off"), help="hide all digits that callers dial")


def changes_of(options: argparse.Namespace) -> dict[str, Any]:
    """What of an organization is to be set."""
    days = {f"keep_{kind}_days": getattr(options, f"keep_{kind}_days") for kind in DATA_KINDS}
    switches = {"redact": options.redact, "redact_dialled": options.redact_dialled}
    return {
        **{name: None if value == FOR_EVER else value for name, value in days.items() if value is not None},
        **{name: value == "on" for name, value in switches.items() if value is not None},
    }


def describe(organization: Organization) -> str:
    """For `org list`."""
    days = (organization.keep_recordings_days, organization.keep_transcripts_days, organization.keep_calls_days)
    kept = [f"{kind} {FOR_EVER if each is None else f'{each} d'}" for kind, each in zip(DATA_KINDS, days, strict=True)]
    hidden = {"numbers": organization.redact, "what is dialled": organization.redact_dialled}
    redacts = " and ".join(name for name, is_on in hidden.items() if is_on)
    return f"keeps {', '.join(kept)}  redacts {redacts or 'nothing'}"


def _days(text: str) -> int | str:
    if text == FOR_EVER:
        return text
    if not text.isascii() or not text.isdecimal() or int(text) > MOST_DAYS:
        raise argparse.ArgumentTypeError(f"takes a number of days from 0 to {MOST_DAYS}, or {FOR_EVER}")
    return int(text)
