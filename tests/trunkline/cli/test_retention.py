"""The retention and redaction arguments of `trunkline org set`."""

from __future__ import annotations

import click
import pytest

from trunkline.cli.accounts import retention


@click.command
@retention.options
def command(**options: object) -> dict[str, object]:
    return retention.changes(options)


def changes(*arguments: str) -> dict[str, object]:
    changes: dict[str, object] = command.main(arguments, standalone_mode=False)
    return changes


def test_only_named_fields_are_changed() -> None:
    assert changes() == {}
    assert changes("--keep-calls-days", "forever", "--redact", "off") == {"keep_calls_days": None, "redact": False}
    assert changes("--keep-recordings-days", "0") == {"keep_recordings_days": 0}


@pytest.mark.parametrize("days", ["-1", "1.5", "never", "36501", ""])
def test_invalid_days_are_rejected(days: str) -> None:
    with pytest.raises(click.BadParameter, match="0 to 36500, or forever"):
        changes("--keep-calls-days", days)
