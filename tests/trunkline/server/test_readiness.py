"""What /readyz is reason about the parts of a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from trunkline.server.background_tasks import run_task
from trunkline.server.server import Server


def server(ticks: list[int]) -> Server:
    """A server whose audio engine returns the next of `ticks` at each check; its other parts are None."""

    class Engine:
        @property
        def stats(self) -> SimpleNamespace:
            return SimpleNamespace(ticks=ticks.pop(0))

    anything: Any = None
    engine: Any = Engine()
    return Server(
        anything, anything, anything, engine, anything, anything, anything, anything, anything, 5060, anything
    )


def test_an_audio_engine_that_stops_ticking_makes_the_server_unready_until_it_ticks() -> None:
    under_test = server([1, 2, 2, 3])
    seen = []
    for _ in range(4):
        under_test.check_audio()
        seen.append(under_test.readiness()["audio"])
    assert seen == [None, None, "the audio engine stands still", None]


async def test_a_background_task_that_fails_makes_the_server_unready_and_is_logged() -> None:
    async def fails() -> None:
        raise RuntimeError("no")

    under_test = server([])
    with capture_logs() as lines:
        await run_task(under_test, "webhooks", fails)
    assert under_test.readiness()["webhooks"] == "failed, see the log"
    assert [(line["event"], line["task"]) for line in lines] == [("server.task_failed", "webhooks")]


@pytest.mark.parametrize(("draining", "reason"), [(False, None), (True, "draining")])
def test_a_draining_server_accepts_no_calls(draining: bool, reason: str | None) -> None:
    under_test = server([])
    under_test.draining = draining
    assert under_test.readiness()["calls"] == reason
