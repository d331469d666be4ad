"""The priority of model threads is lowered, never raised, which only root may do."""

from __future__ import annotations

import os
import threading

import pytest

from models.runtime.thread_priority import lower_thread_priority


@pytest.mark.parametrize("started_with", [0, 12])
def test_a_thread_keeps_a_niceness_that_is_higher_already(started_with: int) -> None:
    niceness: list[int] = []

    def run() -> None:
        thread = threading.get_native_id()
        niceness.append(max(started_with, os.getpriority(os.PRIO_PROCESS, thread)))
        os.setpriority(os.PRIO_PROCESS, thread, niceness[0])
        lower_thread_priority(5)
        niceness.append(os.getpriority(os.PRIO_PROCESS, thread))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert niceness[1] == max(niceness[0], 5)
