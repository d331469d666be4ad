"""The file descriptor limit is raised at the start, and a limit that is too low is logged."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from trunkline.server.file_descriptor_limit import raise_file_descriptor_limit


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_to_the_hard_one(limits: tuple[int, int]) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    raise_file_descriptor_limit(1, 1)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_a_hard_limit_that_is_too_low_is_logged(limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1024))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: None)
    with capture_logs() as lines:
        raise_file_descriptor_limit(250, 512)
    assert [(line["event"], line["needed"]) for line in lines] == [("descriptors.too_few", 1812)]
