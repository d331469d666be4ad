"""One server on one data directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from config.errors import StartupError
from storage import lock

HOLDER = """
import sys, time
from pathlib import Path
from storage import lock
with lock.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def _holder(folder: Path) -> subprocess.Popen[bytes]:
    started = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"held\n"
    return started


def test_a_second_server_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    with _holder(tmp_path) as first:
        with (
            pytest.raises(StartupError, match=f"another server \\(process {first.pid}\\) uses data_dir"),
            lock.hold(tmp_path),
        ):
            pass
        first.communicate()


def test_a_dead_server_holds_nothing(tmp_path: Path) -> None:
    with _holder(tmp_path) as first:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    with lock.hold(tmp_path):
        assert (tmp_path / lock.LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_to_ask_for_a_server_takes_and_makes_nothing(tmp_path: Path) -> None:
    assert not lock.held(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with _holder(tmp_path) as first:
        assert lock.held(tmp_path)
        with pytest.raises(StartupError, match="another server"), lock.hold(tmp_path):
            pass
        assert lock.held(tmp_path)
        first.communicate()
    assert not lock.held(tmp_path)
    assert (tmp_path / lock.LOCK_NAME).read_text() == f"{first.pid}\n"


def test_a_server_can_start_while_others_ask_for_one(tmp_path: Path) -> None:
    asking = Event()

    def ask() -> None:
        while not asking.is_set():
            lock.held(tmp_path)

    thread = Thread(target=ask)
    thread.start()
    try:
        for _ in range(200):
            with lock.hold(tmp_path):
                assert lock.held(tmp_path)
    finally:
        asking.set()
        thread.join()


def test_a_lock_can_be_taken_again_after_its_block(tmp_path: Path) -> None:
    for _ in range(2):
        with lock.hold(tmp_path / "new"):
            pass


def test_an_unusable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError, match=r"data_dir .*file cannot be used"), lock.hold(tmp_path / "file"):
        pass
