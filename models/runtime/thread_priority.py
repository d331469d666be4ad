"""Thread priority: model threads run below the threads of the audio and of the event loop."""

from __future__ import annotations

import os
import threading


def lower_thread_priority(niceness: int) -> None:
    """Set the niceness of the calling thread (0..19), which on Linux does not affect the other threads of the process;
    threads that it starts inherit it. A process that was started with a higher one keeps it: only root may lower it."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, max(niceness, os.getpriority(os.PRIO_PROCESS, thread)))
