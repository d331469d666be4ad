"""What `org set` takes of days and switches."""

from __future__ import annotations

import pytest

from trunkline.cli.main import _parser
from trunkline.cli.privacy import changes_of


def changes(*arguments: str) -> dict[str, object]:
    return changes_of(_parser().parse_args(["org", "set", "Lighthouse", *arguments]))


def test_what_is_not_named_is_not_changed() -> None:
    assert changes() == {}
    assert changes("--keep-calls-days", "forever", "--redact", "off") == {"keep_calls_days": None, "redact": False}
    assert changes("--keep-recordings-days", "0") == {"keep_recordings_days": 0}


@pytest.mark.parametrize("days", ["-1", "1.5", "never", "36501", ""])
def test_other_days_are_refused(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        changes("--keep-calls-days", days)
    assert "0 to 36500, or forever" in capsys.readouterr().err
