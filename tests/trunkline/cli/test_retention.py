"""The retention and redaction arguments of `trunkline org set`."""

from __future__ import annotations

import pytest

from trunkline.cli import retention
from trunkline.cli.main import _parser


def changes(*arguments: str) -> dict[str, object]:
    return retention.changes(_parser().parse_args(["org", "set", "Lighthouse", *arguments]))


def test_only_named_fields_are_changed() -> None:
    assert changes() == {}
    assert changes("--keep-calls-days", "forever", "--redact", "off") == {"keep_calls_days": None, "redact": False}
    assert changes("--keep-recordings-days", "0") == {"keep_recordings_days": 0}


@pytest.mark.parametrize("days", ["-1", "1.5", "never", "36501", ""])
def test_invalid_days_are_rejected(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        changes("--keep-calls-days", days)
    assert "0 to 36500, or forever" in capsys.readouterr().err
