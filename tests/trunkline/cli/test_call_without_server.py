"""`trunkline call`, without a server."""

from __future__ import annotations

import pytest

from tests.trunkline.cli.conftest import Run

NOBODY = "3f0c2a9e-6a4c-4f0e-9b1d-8f6f0a3f3c11"


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Commands may block the event loop."""


def test_without_a_server_stored_calls_are_shown_only(run: Run) -> None:
    assert run("call", "list", "--json") == ""
    run("agent", "create", "Reception")
    dial = ("call", "dial", "100", "--agent", "Reception")
    assert "Bay has no phone number with a trunk: `trunkline number create`" in run(*dial, status=1)
    run("number", "create", "700", "--ip", "192.0.2.10")
    assert run(*dial, status=1) == "trunkline: no server runs on data: start it with `trunkline serve`\n"
    assert "Bay has no phone number '70'" in run(*dial, "--number", "70", status=1)
    for words in (("show",), ("watch",), ("hangup",)):
        assert run("call", *words, NOBODY, status=1) == (
            f"trunkline: Bay has no call {NOBODY!r}: see `trunkline call list`\n"
        )
    assert "Bay has no agent 'Nobody'" in run("call", "list", "--agent", "Nobody", status=1)
