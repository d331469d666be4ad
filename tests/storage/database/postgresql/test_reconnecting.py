"""When a connection is opened again in an outage, and what transactions do meanwhile, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from storage.database.errors import StorageUnavailable
from storage.database.postgresql import connection_thread
from storage.database.postgresql.connection_thread import ConnectionThread

OUTAGE_S = 600.0
URL = make_url("postgresql+psycopg://trunkline@192.0.2.1/x")


class SilentServer:
    """A server that lets each attempt to connect wait; `now_s` is its time, and that of the connection."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.now_s = 1000.0
        self.attempts_at_s: list[float] = []

    def connect(self, _url: object) -> Any:
        self.attempts_at_s.append(self.now_s)
        self.now_s += self._timeout_s
        raise psycopg.errors.ConnectionTimeout("connection timeout expired")

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], SilentServer]:
    def make(timeout_s: float) -> SilentServer:
        server = SilentServer(timeout_s)
        monkeypatch.setattr(connection_thread, "connect", server.connect)
        monkeypatch.setattr(connection_thread, "time", server)
        return server

    return make


async def cause_of(thread: ConnectionThread) -> str:
    with pytest.raises(StorageUnavailable) as caught:
        await thread.begin(lambda _: None, copy_context())
    assert caught.value.is_unreachable
    return caught.value.cause


async def test_what_waits_for_a_silent_server_fails_together(
    silent: Callable[[float], SilentServer],
) -> None:
    server, thread = silent(3.0), ConnectionThread(URL, "test", None)
    causes = {await cause_of(thread) for _ in range(100)}
    assert (len(server.attempts_at_s), server.now_s) == (1, 1003.0), "one has waited for the time-out"
    assert causes == {"the database cannot be reached: connection timeout expired"}
    thread.connect_soon()
    await cause_of(thread)
    assert len(server.attempts_at_s) == 2
    await thread.close()


@pytest.mark.parametrize("timeout_s", [0.0, 3.0])
async def test_the_pause_stays_as_short_for_ten_minutes_and_has_jitter(
    silent: Callable[[float], SilentServer], timeout_s: float
) -> None:
    server, thread = silent(timeout_s), ConnectionThread(URL, "test", None)
    while server.now_s < 1000 + OUTAGE_S:
        await cause_of(thread)
        server.now_s += 0.05
    await thread.close()
    attempts = server.attempts_at_s
    pauses = [later - earlier - timeout_s for earlier, later in pairwise(attempts)]
    assert 0.5 <= min(pauses) < 0.6 and 0.9 < max(pauses) < 1.1
    assert len(set(pauses)) > 5, "nodes do not come together"
