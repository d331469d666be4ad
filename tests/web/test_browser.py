"""The browser of these tests."""

from __future__ import annotations

import platform
from typing import NoReturn

import pytest

from tests.peers import chromium


@pytest.mark.parametrize(
    ("installed", "distribution", "skipped"),
    [(True, "debian", False), (False, "debian", False), (True, "", False), (False, "ubuntu", True), (False, "", True)],
)
def test_the_tests_are_skipped_only_where_the_browser_may_be_missing(
    installed: bool, distribution: str, skipped: bool
) -> None:
    assert chromium.may_be_missing(installed, distribution) is skipped


def test_a_system_without_os_release_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> NoReturn:
        raise OSError("no os-release")

    monkeypatch.setattr(platform, "freedesktop_os_release", absent)
    assert chromium.system() == ""
