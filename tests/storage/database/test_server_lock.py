"""Locks: one server on a data directory, and on a database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event, Thread

import pytest

from config.errors import StartupError
from storage.database import server_lock

HOLDER = """
import sys, time
from pathlib import Path
from storage.database import server_lock
with getattr(server_lock, sys.argv[2])(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def _holder(path: Path, function: str = "lock_data_dir") -> subprocess.Popen[bytes]:
    started = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), function],
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
            server_lock.lock_data_dir(tmp_path),
        ):
            pass
        first.communicate()


def test_a_dead_server_holds_no_lock(tmp_path: Path) -> None:
    with _holder(tmp_path) as first:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    with server_lock.lock_data_dir(tmp_path):
        assert (tmp_path / server_lock.LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_querying_the_lock_neither_takes_nor_creates_it(tmp_path: Path) -> None:
    assert not server_lock.is_locked(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with _holder(tmp_path) as first:
        assert server_lock.is_locked(tmp_path)
        with pytest.raises(StartupError, match="another server"), server_lock.lock_data_dir(tmp_path):
            pass
        assert server_lock.is_locked(tmp_path)
        first.communicate()
    assert not server_lock.is_locked(tmp_path)
    assert (tmp_path / server_lock.LOCK_NAME).read_text() == f"{first.pid}\n"


def test_a_server_can_start_while_the_lock_is_queried(tmp_path: Path) -> None:
    asking = Event()

    def ask() -> None:
        while not asking.is_set():
            server_lock.is_locked(tmp_path)

    thread = Thread(target=ask)
    thread.start()
    try:
        for _ in range(200):
            with server_lock.lock_data_dir(tmp_path):
                assert server_lock.is_locked(tmp_path)
    finally:
        asking.set()
        thread.join()


def test_a_lock_can_be_taken_again_after_its_block(tmp_path: Path) -> None:
    for _ in range(2):
        with server_lock.lock_data_dir(tmp_path / "new"):
            pass


def test_an_unusable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(StartupError, match=r"data_dir .*file cannot be used"),
        server_lock.lock_data_dir(tmp_path / "file"),
    ):
        pass


def test_a_second_server_on_the_database_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    path, link = tmp_path / "shared" / "own.db", tmp_path / "link.db"
    link.symlink_to(path)
    with _holder(path, "lock_database") as first:
        for each in (path, link):
            complaint = (
                f"another server \\(process {first.pid}\\) uses the database {each}: stop it, or set another "
                "\\[database\\] url$"
            )
            with pytest.raises(StartupError, match=complaint), server_lock.lock_database(each):
                pass
        with (
            server_lock.lock_database(tmp_path / "shared" / "other.db"),
            server_lock.lock_data_dir(tmp_path / "shared"),
        ):
            pass
        first.communicate()


def test_a_dead_server_holds_no_database(tmp_path: Path) -> None:
    with _holder(tmp_path / "own.db", "lock_database") as first:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    with server_lock.lock_database(tmp_path / "own.db"):
        assert (tmp_path / "own.db-server").read_text() == f"{os.getpid()}\n"


def test_an_unusable_folder_of_the_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "own.db"
    with pytest.raises(StartupError, match=f"the database {path} cannot be used: "), server_lock.lock_database(path):
        pass


READER = """
import fcntl, os, struct, sys
handle = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(handle, getattr(fcntl, sys.argv[2]), struct.pack("hhqqi0q", fcntl.F_RDLCK, 0, 0, 0, 0))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("command", ["F_OFD_SETLK", "F_SETLK"])
def test_a_read_lock_of_a_foreign_process_is_named_and_cannot_be_repeated(tmp_path: Path, command: str) -> None:
    path = tmp_path / server_lock.LOCK_NAME
    path.touch()
    path.chmod(0o644)
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(path), command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"held\n"
        complaint = f"process {reader.pid}, which is no server, holds the lock of data_dir {tmp_path}: end that process"
        with pytest.raises(StartupError, match=complaint), server_lock.lock_data_dir(tmp_path):
            pass
        assert path.stat().st_mode & 0o777 == 0o600
        reader.communicate()
    with server_lock.lock_data_dir(tmp_path):
        pass


@pytest.mark.parametrize(
    "hold", [server_lock.lock_data_dir, lambda folder: server_lock.lock_database(folder / "own.db")]
)
def test_a_lock_file_is_private_under_any_umask(
    tmp_path: Path, hold: Callable[[Path], AbstractContextManager[None]]
) -> None:
    before = os.umask(0)
    try:
        with hold(tmp_path / "data"):
            modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "data").iterdir()}
    finally:
        os.umask(before)
    assert set(modes.values()) == {"0o600"}
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
