"""Backup archive: a tar file of plain files, with a header (`backup.json`) as the first and a manifest as the last one.

It is read block by block and not by `tarfile`, because an archive may be hostile: links, devices, long names, extended
headers and folders, which no backup holds, are rejected. The format is POSIX.1-1988 ustar, with sizes over 8 GiB as
GNU tar writes them.
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
HEADER: Final = "backup.json"
MANIFEST: Final = "manifest.json"
DATABASE: Final = "trunkline.db"
KEY: Final = "secret.key"
SETTINGS: Final = "settings.toml"
CHUNK_BYTES: Final = 1024 * 1024
MAX_HEADER_BYTES: Final = 64 * 1024
MAX_MANIFEST_BYTES: Final = 16 * 1024 * 1024
"""The longest manifest of an archive without files."""
MAX_MANIFEST_BYTES_PER_FILE: Final = 320
_BLOCK: Final = tarfile.BLOCKSIZE
_ID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FILE_NAME: Final = re.compile(
    rf"{re.escape(DATABASE)}|{re.escape(KEY)}|{re.escape(SETTINGS)}"
    rf"|recordings/[0-9]{{4}}/[0-9]{{2}}/{_ID}\.wav|knowledge/{_ID}|sounds/{_ID}\.wav"
)
_PRINTABLE: Final = re.compile(r"[0-9A-Za-z.+:_-]{1,64}")
"""A version or time of the manifest, which is safe to print on a terminal."""
_TRUNCATED: Final = "the archive is cut off: copy it again, or take another one"
_NO_BACKUP: Final = "this is no backup of Trunkline"
_DAMAGED: Final = "the archive is damaged: copy it again, or take another one"


class InvalidArchive(StartupError):
    """The file is no backup, or a damaged one; nothing of it is used."""


@dataclass(frozen=True)
class ArchiveEntry:
    """A file of the archive: its size in bytes and its SHA-256 in hex."""

    size: int
    sha256: str


@dataclass(frozen=True)
class BackupManifest:
    """The content of an archive. `version` is Trunkline's, `revision` the database schema's, `created_at` the time of
    the database snapshot (ISO 8601). `missing`: files that rows reference and that were deleted before they were
    read."""

    version: str
    revision: str
    created_at: str
    files: dict[str, ArchiveEntry] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def header_json(self) -> dict[str, Any]:
        """The archive's header: the fields that are known before the files are read."""
        fields = {"version": self.version, "revision": self.revision, "createdAt": self.created_at}
        return {"trunklineBackup": FORMAT, **fields}

    def manifest_json(self) -> dict[str, Any]:
        """The archive's manifest: the header's fields, the files and the missing files."""
        files = {name: {"size": entry.size, "sha256": entry.sha256} for name, entry in self.files.items()}
        return {**self.header_json(), "files": files, "missing": self.missing}


class ArchiveWriter:
    """Writes an archive to `out`, file by file, and collects its manifest. Raises `OSError` if `out` cannot be
    written."""

    def __init__(self, out: BinaryIO, manifest: BackupManifest, at: float, after_chunk: Callable[[], None]) -> None:
        """`at`: the modification time of every file in the archive, Unix time in s. `after_chunk` is called after each
        chunk."""
        self._out = out
        self._after_chunk = after_chunk
        self._at = int(at)
        self.manifest = manifest
        self.on_added: Callable[[int], None] = lambda _added_bytes: None
        """Called after each chunk with the bytes of all files so far."""
        self._added_bytes = 0
        self._write_file(HEADER, json.dumps(manifest.header_json()).encode())

    def add(self, name: str, size: int, chunks: Iterator[bytes]) -> None:
        """Write a file. Raises `ValueError` if the chunks are not `size` bytes in total."""
        digest, written = hashlib.sha256(), 0
        self._out.write(self._tar_header(name, size))
        for chunk in chunks:
            digest.update(chunk)
            self._out.write(chunk)
            written += len(chunk)
            self._added_bytes += len(chunk)
            self._after_chunk()
            self.on_added(self._added_bytes)
        if written != size:
            raise ValueError(f"{name} has {written} bytes, not {size}")
        self._out.write(bytes(-size % _BLOCK))
        self.manifest.files[name] = ArchiveEntry(size, digest.hexdigest())

    def close(self) -> None:
        """Write the manifest, and the end of the tar file."""
        self._write_file(MANIFEST, json.dumps(self.manifest.manifest_json(), indent=0).encode())
        self._out.write(bytes(2 * _BLOCK))

    def _write_file(self, name: str, content: bytes) -> None:
        self._out.write(self._tar_header(name, len(content)) + content + bytes(-len(content) % _BLOCK))

    def _tar_header(self, name: str, size: int) -> bytes:
        member = tarfile.TarInfo(name)
        member.size, member.mode, member.mtime = size, 0o600, self._at
        return member.tobuf(tarfile.GNU_FORMAT)


class ArchiveReader:
    """Reads an archive once, from its beginning. Its content is untrusted: anything that `ArchiveWriter` does not write
    raises `InvalidArchive`."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._unread = self._padding = 0
        self._file_count = 0
        name, size = self._first_member()
        if name != HEADER or size > MAX_HEADER_BYTES:
            raise InvalidArchive(_NO_BACKUP)
        self.header = _parse_object(self._read_member())
        if self.header.get("trunklineBackup") != FORMAT:
            raise InvalidArchive("the backup was made by a newer version of Trunkline: restore it with that one")

    def files(self) -> Iterator[tuple[str, int]]:
        """Yields the name and size of each file before the manifest; `chunks` yields the bytes of the current one."""
        while (member := self._next_member()) is not None:
            name, size = member
            if name == MANIFEST:
                if size > MAX_MANIFEST_BYTES + MAX_MANIFEST_BYTES_PER_FILE * self._file_count:
                    raise InvalidArchive("its manifest is too long")
                return
            self._file_count += 1
            if not _FILE_NAME.fullmatch(name):
                raise InvalidArchive(f"it holds {name!r}, which no backup does")
            yield name, size
            self._skip_member()
        raise InvalidArchive(_TRUNCATED)

    def chunks(self) -> Iterator[bytes]:
        """Yields the bytes of the file that `files` has yielded last."""
        while self._unread:
            chunk = self._read_exactly(min(self._unread, CHUNK_BYTES))
            self._unread -= len(chunk)
            yield chunk

    def manifest(self) -> BackupManifest:
        """Returns the manifest, after the last of `files`. Only the end of the archive may follow."""
        value = _parse_object(self._read_member())
        if self._next_member() is not None:
            raise InvalidArchive("a file follows its manifest")
        if {name: value.get(name) for name in self.header} != self.header:
            raise InvalidArchive("its manifest does not match its header")
        try:
            files = {
                _checked_name(name): ArchiveEntry(int(each["size"]), str(each["sha256"]))
                for name, each in value["files"].items()
            }
            missing = [_checked_name(name) for name in value["missing"]]
            version, revision, created_at = (_printable(value[name]) for name in ("version", "revision", "createdAt"))
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InvalidArchive("its manifest is invalid") from error
        return BackupManifest(version, revision, created_at, files, missing)

    def _first_member(self) -> tuple[str, int]:
        """Name and size of the archive's first file. If it is not that of a backup, no other error is reported, because
        the archive's length and checksums mean nothing then."""
        block = self._read(_BLOCK, f"{_NO_BACKUP}, or a damaged one: it cannot be unpacked")
        if not block.startswith(HEADER.encode()):
            raise InvalidArchive(_NO_BACKUP if block else f"{_NO_BACKUP}: it is empty")
        if len(block) < _BLOCK:
            raise InvalidArchive(_TRUNCATED)
        return self._parse_tar_header(block)

    def _next_member(self) -> tuple[str, int] | None:
        """Name and size of the next file; None at the end of the archive."""
        self._skip_member()
        block = self._read_exactly(_BLOCK)
        return None if block == bytes(_BLOCK) else self._parse_tar_header(block)

    def _parse_tar_header(self, block: bytes) -> tuple[str, int]:
        try:
            member = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError) as error:
            raise InvalidArchive(_DAMAGED) from error
        if member.type != tarfile.REGTYPE or member.size < 0:
            raise InvalidArchive(f"it holds {member.name!r}, which is no plain file")
        self._unread, self._padding = member.size, -member.size % _BLOCK
        return member.name, member.size

    def _skip_member(self) -> None:
        for _ in self.chunks():
            pass
        self._read_exactly(self._padding)
        self._padding = 0

    def _read_member(self) -> bytes:
        return b"".join(self.chunks())

    def _read_exactly(self, size: int) -> bytes:
        data = self._read(size)
        if len(data) != size:
            raise InvalidArchive(_TRUNCATED)
        return data

    def _read(self, size: int, damaged: str = _DAMAGED) -> bytes:
        """Read at most `size` bytes. `damaged`: the error if they cannot be decompressed."""
        try:
            return self._source.read(size)
        except EOFError as error:  # gzip: the compressed data is truncated
            raise InvalidArchive(_TRUNCATED) from error
        except (zlib.error, gzip.BadGzipFile) as error:
            raise InvalidArchive(damaged) from error
        except OSError as error:
            raise InvalidArchive(f"the archive cannot be read: {error.strerror or error}") from error


def _checked_name(name: str) -> str:
    """The name of a file that a backup may hold. Raises `ValueError`."""
    if not _FILE_NAME.fullmatch(name):
        raise ValueError("no backup holds a file of this name")
    return name


def _printable(value: str) -> str:
    """Raises `ValueError` for text that is not safe to print on a terminal."""
    if not _PRINTABLE.fullmatch(value):
        raise ValueError("not printable")
    return value


def _parse_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidArchive("its header or manifest is not JSON")
    return value
