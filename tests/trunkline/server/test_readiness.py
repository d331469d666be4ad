"""What /readyz is told about the parts of a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from trunkline.server.server import Server
from trunkline.server.startup import _watched


def server(ticks: list[int]) -> Server:
    """A server of which only the audio engine's counter matters: it tells the next of `ticks` at each look."""

    class Engine:
        @property
        def stats(self) -> SimpleNamespace:
            return SimpleNamespace(ticks=ticks.pop(0))

    anything: Any = None
    engine: Any = Engine()
    return Server(anything, anything, anything, engine, anything, anything, anything, anything, 5060)


def test_a_tick_thread_that_stands_still_makes_the_server_unready_until_it_moves() -> None:
    watched = server([1, 2, 2, 3])
    seen = []
    for _ in range(4):
        watched.watch_audio()
        seen.append(watched.readiness()["audio"])
    assert seen == [None, None, "the audio engine stands still", None]


async def test_a_background_task_that_fails_makes_the_server_unready_and_is_logged() -> None:
    async def fails() -> None:
        raise RuntimeError("no")

    watched = server([])
    with capture_logs() as lines:
        await _watched(watched, "webhooks", fails)
    assert watched.readiness()["webhooks"] == "failed, see the log"
    assert [(line["event"], line["task"]) for line in lines] == [("server.task_failed", "webhooks")]


@pytest.mark.parametrize(("draining", "told"), [(False, None), (True, "draining")])
def test_a_draining_server_takes_no_calls(draining: bool, told: str | None) -> None:
    watched = server([])
    watched.draining = draining
    assert watched.readiness()["calls"] == told
