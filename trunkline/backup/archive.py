"""The archive of a backup: a tar file of plain files, the first one says what it is, the last one what is in it.

It is read here block by block and not by `tarfile`: links, devices, long names, extended headers and folders are in no
backup, so that whatever an archive may do with them cannot be done. (The format: POSIX.1-1988 ustar, sizes over 8 GiB
as GNU tar writes them.)
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from config.errors import StartupError

FORMAT: Final = 1
HEAD: Final = "backup.json"
MANIFEST: Final = "manifest.json"
DATABASE: Final = "trunkline.db"
KEY: Final = "secret.key"
SETTINGS: Final = "settings.toml"
CHUNK_BYTES: Final = 1024 * 1024
"""Bytes that are read at once."""
MOST_HEAD: Final = 64 * 1024
MOST_MANIFEST: Final = 16 * 1024 * 1024
"""Bytes, and besides:"""
MOST_OF_A_FILE: Final = 320
"""Bytes for each file of the archive."""
_BLOCK: Final = tarfile.BLOCKSIZE
_ID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAMES: Final = re.compile(
    rf"{re.escape(DATABASE)}|{re.escape(KEY)}|{re.escape(SETTINGS)}"
    rf"|recordings/[0-9]{{4}}/[0-9]{{2}}/{_ID}\.wav|knowledge/{_ID}|sounds/{_ID}\.wav"
)
_FACT: Final = re.compile(r"[0-9A-Za-z.+:_-]{1,64}")
"""What is told of an archive, which a terminal may show."""
_NOT_WHOLE: Final = "the archive is cut off: copy it again, or take another one"
_NO_BACKUP: Final = "this is no backup of Trunkline"
_DAMAGED: Final = "the archive is damaged: copy it again, or take another one"


class BadArchive(StartupError):
    """It is no backup, or not what was written; nothing of it is used."""


@dataclass(frozen=True)
class Entry:
    """A file of the archive: its size in bytes and its SHA-256 in hex."""

    size: int
    sha256: str


@dataclass(frozen=True)
class BackupManifest:
    """What is in an archive. `version` is Trunkline's, `revision` that of the tables, `created_at` the moment of the
    database (ISO 8601). `missing`: files that its rows speak of and that were gone when they were to be read."""

    version: str
    revision: str
    created_at: str
    files: dict[str, Entry] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def head(self) -> dict[str, Any]:
        """What is known before the files are read."""
        about = {"version": self.version, "revision": self.revision, "createdAt": self.created_at}
        return {"trunklineBackup": FORMAT, **about}

    def whole(self) -> dict[str, Any]:
        """All of it, as JSON."""
        files = {name: {"size": entry.size, "sha256": entry.sha256} for name, entry in self.files.items()}
        return {**self.head(), "files": files, "missing": self.missing}


class ArchiveWriter:
    """Writes an archive from its beginning to its end; keeps the manifest. `OSError` when `out` takes no more."""

    def __init__(self, out: BinaryIO, manifest: BackupManifest, at: float, pause: Callable[[], None]) -> None:
        """`at`: the time of every file in it, Unix time in s. `pause` is called after each piece."""
        self._out = out
        self._pause = pause
        self._at = int(at)
        self.manifest = manifest
        self._put(HEAD, json.dumps(manifest.head()).encode())

    def add(self, name: str, size: int, pieces: Iterator[bytes]) -> None:
        """One file, whose pieces must come to `size` bytes. `ValueError` when they do not."""
        digest, written = hashlib.sha256(), 0
        self._out.write(self._header(name, size))
        for piece in pieces:
            digest.update(piece)
            self._out.write(piece)
            written += len(piece)
            self._pause()
        if written != size:
            raise ValueError(f"{name} came to {written} bytes, not to {size}")
        self._out.write(bytes(-size % _BLOCK))
        self.manifest.files[name] = Entry(size, digest.hexdigest())

    def close(self) -> None:
        """The manifest, and the end of the tar file."""
        self._put(MANIFEST, json.dumps(self.manifest.whole(), indent=0).encode())
        self._out.write(bytes(2 * _BLOCK))

    def _put(self, name: str, content: bytes) -> None:
        self._out.write(self._header(name, len(content)) + content + bytes(-len(content) % _BLOCK))

    def _header(self, name: str, size: int) -> bytes:
        facts = tarfile.TarInfo(name)
        facts.size, facts.mode, facts.mtime = size, 0o600, self._at
        return facts.tobuf(tarfile.GNU_FORMAT)


class ArchiveReader:
    """Reads an archive once, from its beginning. Everything in it may be hostile: whatever is not as `ArchiveWriter`
    writes it raises `BadArchive`."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._left = self._padding = 0
        self._files = 0
        name, size = self._first()
        if name != HEAD or size > MOST_HEAD:
            raise BadArchive(_NO_BACKUP)
        self.head = _object(self._all())
        if self.head.get("trunklineBackup") != FORMAT:
            raise BadArchive("the backup was made by a newer version of Trunkline: restore it with that one")

    def files(self) -> Iterator[tuple[str, int]]:
        """Name and size of one file after the other, as far as the manifest; `pieces` gives the bytes of the last."""
        while (found := self._next()) is not None:
            name, size = found
            if name == MANIFEST:
                if size > MOST_MANIFEST + MOST_OF_A_FILE * self._files:
                    raise BadArchive("its manifest is too long")
                return
            self._files += 1
            if not _NAMES.fullmatch(name):
                raise BadArchive(f"it holds {name!r}, which no backup does")
            yield name, size
            self._skip()
        raise BadArchive(_NOT_WHOLE)

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the file that `files` has just named."""
        while self._left:
            piece = self._exactly(min(self._left, CHUNK_BYTES))
            self._left -= len(piece)
            yield piece

    def manifest(self) -> BackupManifest:
        """After `files`: what should have been in it. Nothing but the archive's end may follow."""
        value = _object(self._all())
        if self._next() is not None:
            raise BadArchive("something follows on its end")
        if {name: value.get(name) for name in self.head} != self.head:
            raise BadArchive("its end is not that of its beginning")
        try:
            files = {
                _name(name): Entry(int(each["size"]), str(each["sha256"])) for name, each in value["files"].items()
            }
            missing = [_name(name) for name in value["missing"]]
            version, revision, created_at = (_fact(value[name]) for name in ("version", "revision", "createdAt"))
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise BadArchive("its manifest is none") from error
        return BackupManifest(version, revision, created_at, files, missing)

    def _first(self) -> tuple[str, int]:
        """Name and size of what the archive begins with. Of whatever does not begin as a backup does, nothing more is
        said than that it is none: neither its length nor its sums mean anything."""
        block = self._read(_BLOCK, f"{_NO_BACKUP}, or a damaged one: it cannot be unpacked")
        if not block.startswith(HEAD.encode()):
            raise BadArchive(_NO_BACKUP if block else f"{_NO_BACKUP}: it is empty")
        if len(block) < _BLOCK:
            raise BadArchive(_NOT_WHOLE)
        return self._header_of(block)

    def _next(self) -> tuple[str, int] | None:
        """Name and size of the next file; None at the end of the archive."""
        self._skip()
        block = self._exactly(_BLOCK)
        return None if block == bytes(_BLOCK) else self._header_of(block)

    def _header_of(self, block: bytes) -> tuple[str, int]:
        try:
            facts = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError) as error:
            raise BadArchive(_DAMAGED) from error
        if facts.type != tarfile.REGTYPE or facts.size < 0:
            raise BadArchive(f"it holds {facts.name!r}, which is no plain file")
        self._left, self._padding = facts.size, -facts.size % _BLOCK
        return facts.name, facts.size

    def _skip(self) -> None:
        for _ in self.pieces():
            pass
        self._exactly(self._padding)
        self._padding = 0

    def _all(self) -> bytes:
        return b"".join(self.pieces())

    def _exactly(self, size: int) -> bytes:
        found = self._read(size)
        if len(found) != size:
            raise BadArchive(_NOT_WHOLE)
        return found

    def _read(self, size: int, damaged: str = _DAMAGED) -> bytes:
        try:
            return self._source.read(size)
        except EOFError as error:  # of what is compressed
            raise BadArchive(_NOT_WHOLE) from error
        except (zlib.error, gzip.BadGzipFile) as error:
            raise BadArchive(damaged) from error
        except OSError as error:
            raise BadArchive(f"the archive cannot be read: {error.strerror or error}") from error


def _name(value: str) -> str:
    """Of a file that a backup may hold. Raises `ValueError`."""
    if not _NAMES.fullmatch(value):
        raise ValueError("no name of ours")
    return value


def _fact(value: str) -> str:
    """Raises `ValueError` for what cannot be shown."""
    if not _FACT.fullmatch(value):
        raise ValueError("no fact of ours")
    return value


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadArchive("what it says of itself cannot be read")
    return found
