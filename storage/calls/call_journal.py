"""Call journal: a file on this node's disk for each call of which something cannot be stored in the database, so that
it is stored afterwards, also by the next process.

A file is written whole beside its name, synced, then renamed, so that one that was being written when the process died
is never read. Its content is encrypted as the secrets of the database are. The files are no part of a backup."""

from __future__ import annotations

import errno
import json
import os
import re
import time
from asyncio import get_running_loop, wrap_future
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from config.secrets import Secrets, SecretUnreadable
from storage.database import file_permissions

FOLDER: Final = "call-journal"
MAX_BYTES: Final = 256 << 20
"""Size of all files; what would be beyond it is not written, and stays in memory alone."""
_SUFFIX: Final = ".call"
_PARTIAL: Final = ".partial"
_DAMAGED: Final = ".damaged"
_HEADER: Final = b"trunkline call 1 "
_NAME: Final = re.compile(r"\d{20}-([0-9a-f-]{36})\.call")

log = structlog.get_logger()
T = TypeVar("T")


@dataclass(frozen=True)
class JournalSize:
    """The number of calls in the journal, and the bytes of their files."""

    calls: int
    bytes: int


class CallJournal:
    """The journal of one process. The files are written and read in the order of the calls of its methods, on a thread
    of its own; of a call that is written twice the last record counts, in the place of the first one. Event loop only.
    `on_size` is called after each change, on any thread."""

    def __init__(self, data_dir: Path, secrets: Secrets, max_bytes: int = MAX_BYTES) -> None:
        self._folder: Final = data_dir / FOLDER
        self._secrets: Final = secrets
        self._max_bytes: Final = max_bytes
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="call journal")
        self._files: dict[str, tuple[str, int]] = {}
        """Names and sizes of the files, by call; in the order of the names. Of the thread."""
        self._failing = False
        self.on_size: Callable[[JournalSize], None] = lambda _: None

    async def open(self) -> None:
        """Find what earlier processes have left."""
        await self._on_thread(self._scan)

    async def close(self) -> None:
        """Finish all writes."""
        await get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def write(self, call_id: str, record: Mapping[str, Any]) -> bool:
        """Write the record of a call, JSON, and sync it to the disk. Returns False if it cannot be written; an earlier
        record of the call is left then. That is logged once until a record can be written; a full disk is not."""
        return await self._on_thread(lambda: self._write(call_id, self._encode(record)))

    def remove(self, call_id: str) -> Future[None]:
        """Remove the record of a call, because all of it is in the database; harmless without one. Returns at once."""
        try:
            return self._thread.submit(self._remove, call_id)
        except RuntimeError:  # closed
            done = Future[None]()
            done.set_result(None)
            return done

    async def calls(self) -> list[str]:
        """The ids of the calls that have records, in the order of their first ones."""
        return await self._on_thread(lambda: list(self._files))

    async def read(self, call_id: str) -> dict[str, Any] | None:
        """Returns the record of a call; None without one, and for a damaged one, which is renamed and logged, and for
        one of another secret key, which stays and is logged."""
        return await self._on_thread(lambda: self._read(call_id))

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await wrap_future(self._thread.submit(work))

    # ---- the journal's thread ----

    def _scan(self) -> None:
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return
        for name in names:
            if name.endswith(_PARTIAL):
                log.warning("call_journal.incomplete", file=name, why="the process died while it wrote this record")
                self._unlink(name)
            elif (found := _NAME.fullmatch(name)) is not None:
                with suppress(OSError):
                    self._files[found[1]] = name, (self._folder / name).stat().st_size
        self._tell_size()

    def _encode(self, record: Mapping[str, Any]) -> bytes:
        token = self._secrets.encrypt(json.dumps(record, separators=(",", ":"))).encode()
        return b"%s%s\n%s" % (_HEADER, sha256(token).hexdigest().encode(), token)

    def _write(self, call_id: str, content: bytes) -> bool:
        name, size = self._files.get(call_id, (f"{time.time_ns():020d}-{call_id}{_SUFFIX}", 0))
        others = sum(each for _, each in self._files.values()) - size
        if others + len(content) > self._max_bytes:
            self._failed(call_id, f"the journal has {others >> 20} of at most {self._max_bytes >> 20} MiB")
            return False
        try:
            self._replace(name, content)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # `DiskSpace` logs a full disk
                self._failed(call_id, error.strerror or str(error))
            return False
        self._failing = False
        self._files[call_id] = name, len(content)
        self._tell_size()
        return True

    def _failed(self, call_id: str, why: str) -> None:
        write = log.debug if self._failing else log.error
        write("call_journal.not_written", call_id=call_id, why=why, folder=str(self._folder))
        self._failing = True

    def _replace(self, name: str, content: bytes) -> None:
        file_permissions.make_folder(self._folder)
        partial = self._folder / f"{name}{_PARTIAL}"
        try:
            handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, file_permissions.FILE)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(self._folder / name)
            self._sync_folder()
        except OSError:
            self._unlink(partial.name)
            raise

    def _sync_folder(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _remove(self, call_id: str) -> None:
        if (found := self._files.pop(call_id, None)) is not None:
            self._unlink(found[0])
            self._tell_size()

    def _read(self, call_id: str) -> dict[str, Any] | None:
        if call_id not in self._files:
            return None
        name, _ = self._files[call_id]
        try:
            content = (self._folder / name).read_bytes()
            return self._decode(content)
        except SecretUnreadable:
            remedy = "put the key that it was written with on a further line of secret_key_file, and restart"
            log.error("call_journal.unreadable", call_id=call_id, file=name, remedy=remedy)
        except (OSError, ValueError) as error:
            log.error("call_journal.damaged", call_id=call_id, file=f"{name}{_DAMAGED}", error=str(error))
            with suppress(OSError):
                (self._folder / name).rename(self._folder / f"{name}{_DAMAGED}")
        self._files.pop(call_id)
        self._tell_size()
        return None

    def _decode(self, content: bytes) -> dict[str, Any]:
        header, _, token = content.partition(b"\n")
        if header != _HEADER + sha256(token).hexdigest().encode():
            raise ValueError("its checksum does not match")
        record = json.loads(self._secrets.decrypt(token.decode()))
        if not isinstance(record, dict):
            raise ValueError("it is no record")
        return record

    def _unlink(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)

    def _tell_size(self) -> None:
        self.on_size(JournalSize(len(self._files), sum(size for _, size in self._files.values())))
