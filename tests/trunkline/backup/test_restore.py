"""Restore of backups; invalid archives are rejected, and change nothing."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import random
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from alembic import command

from config import secrets
from config.clock import utc_now
from config.errors import StartupError
from config.settings import Settings
from storage.accounts import organizations
from storage.calls import calls, recordings
from storage.database import migrations, server_lock
from storage.database.sqlite import migrate
from storage.users import password_links, sessions, users
from tests.trunkline.stored_data import SOUND, SOUND_FILE, store, within
from trunkline.backup import restore_journal
from trunkline.backup.archive import HEADER, MANIFEST, ArchiveEntry, ArchiveWriter, BackupManifest
from trunkline.backup.backup import back_up
from trunkline.backup.restore import restore

TABLES = ("organizations", "calls", "facts", "users", "user_sessions", "password_links")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A data directory with stored data."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("stored"))
    migrate.migrate(settings.data_dir / "trunkline.db")
    store(settings)
    within(settings, _add_user)
    return settings


def _add_user(conn: sa.Connection) -> None:
    """A user who has a password and is signed in, and has a new link."""
    (owner,) = organizations.all_of(conn)
    user = users.create(conn, "anna", "owner", owner.id)
    users.set_password_hash(conn, user.id, "$argon2id$...")
    sessions.create(conn, user.id, utc_now())
    password_links.create(conn, user.id, utc_now())


@pytest.fixture(scope="module")
def archive(stored: Settings) -> Path:
    """A backup of the stored data."""
    path = stored.data_dir.parent / "backup.tar"
    back_up(stored, str(path))
    return path


def _content(folder: Path) -> dict[str, bytes]:
    """The content of every file by its name, without lock files."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.endswith(("lock", "-server", "-start"))}


def _rows(settings: Settings) -> list[Any]:
    with closing(sqlite3.connect(settings.data_dir / "trunkline.db")) as conn:
        found = [(table, row) for table in TABLES for row in conn.execute(f"SELECT * FROM {table}")]
    assert {table for table, _ in found} == set(TABLES)
    return found


@pytest.mark.parametrize("name", ["backup.tar", "backup.tar.gz"])
def test_a_restore_has_all_stored_data_without_unreferenced_files(stored: Settings, tmp_path: Path, name: str) -> None:
    written = back_up(stored, str(tmp_path / name))
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [name], "no other file is left"
    there = Settings(data_dir=tmp_path / "there")
    restored = restore(there, str(tmp_path / name))
    assert (restored.manifest, restored.replaced, restored.key_missing) == (written.manifest, [], None)
    before, after = _content(stored.data_dir), _content(there.data_dir)
    assert set(before) - set(after) == {"sounds/of-nobody.wav"}
    assert all(after[name] == before[name] for name in after if name != "trunkline.db")
    assert _rows(there) == _rows(stored)
    modes = {path.stat().st_mode & 0o777 for path in there.data_dir.rglob("*") if path.name in before}
    assert modes <= {0o600}


def test_a_backup_is_a_plain_tar_file(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        manifest = json.load(tar.extractfile(MANIFEST) or io.BytesIO())
    assert (names[0], names[-1]) == (HEADER, MANIFEST)
    assert set(names) == {HEADER, MANIFEST, *manifest["files"]}


def test_deleted_files_are_listed_and_live_recordings_end_at_their_header_length(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "stored")
    migrate.migrate(settings.data_dir / "trunkline.db")
    gone = store(settings)
    (settings.data_dir / gone).unlink()

    def ring(conn: sa.Connection) -> calls.Call:
        (owner,) = organizations.all_of(conn)
        return calls.create_inbound(
            conn, organization_id=owner.id, agent_id=str(uuid4()), phone_number_id=str(uuid4()), provider="sip",
            call_sid="live", customer_number="1",
        )  # fmt: skip

    within(settings, ring)  # without a recording yet
    live = within(settings, ring)
    name = recordings.path_of(Path(), live.id, live.created_at).as_posix()
    whole = b"RIFF" + (36 + 400).to_bytes(4, "little") + bytes(36) + bytes(400)
    (settings.data_dir / name).write_bytes(whole + b"half an append")
    manifest = back_up(settings, str(tmp_path / "b.tar")).manifest
    assert (manifest.missing, manifest.files[name].size) == ([gone], len(whole))
    restored = restore(Settings(data_dir=tmp_path / "there"), str(tmp_path / "b.tar"))
    assert restored.unfinished.calls == 2
    assert (tmp_path / "there" / name).read_bytes() == whole


def test_recordings_that_are_in_a_store_are_counted_and_are_not_missing(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "stored")
    migrate.migrate(settings.data_dir / "trunkline.db")
    (settings.data_dir / store(settings)).unlink()
    in_store = settings.with_changes({"recordings": {"url": str(tmp_path / "shared")}})
    written = back_up(in_store, str(tmp_path / "b.tar"))
    left = [name for name in written.manifest.files if name.startswith("recordings/")]
    assert (written.in_store, written.manifest.missing) == (1, [])
    assert back_up(settings, str(tmp_path / "c.tar")).in_store == 0
    assert all((settings.data_dir / name).exists() for name in left), "what still waits on the disk is in the backup"


def test_existing_data_is_moved_aside_only_with_replace(archive: Path, stored: Settings, tmp_path: Path) -> None:
    other = Settings(data_dir=tmp_path)
    migrate.migrate(tmp_path / "trunkline.db")
    store(other)
    (tmp_path / "trunkline.db-wal").write_bytes(b"of the old one")
    (tmp_path / "models").mkdir()
    before = _content(tmp_path)
    with pytest.raises(StartupError, match="exists already: --replace moves it aside"):
        restore(other, str(archive))
    assert _content(tmp_path) == before
    (kept,) = restore(other, str(archive), replace=True).replaced
    assert _content(kept) == before
    assert _rows(other) == _rows(stored)
    assert not (tmp_path / "trunkline.db-wal").exists(), "it is not of the new database"
    assert (tmp_path / "models").is_dir()


def test_the_database_and_the_key_are_restored_to_the_settings_paths(
    archive: Path, stored: Settings, tmp_path: Path
) -> None:
    url, key = f"sqlite+aiosqlite:///{tmp_path / 'db' / 'calls.db'}", tmp_path / "keys" / "key"
    there = Settings(data_dir=tmp_path / "data").with_changes({"secret_key_file": key, "database": {"url": url}})
    restore(there, str(archive))
    assert key.read_bytes() == stored.secret_key_path.read_bytes()
    assert (tmp_path / "db" / "calls.db").exists()
    assert set(_content(there.data_dir)) == {name for name in _content(stored.data_dir) if "/" in name} - {
        "sounds/of-nobody.wav"
    }


def test_a_backup_without_the_key_needs_the_key_of_its_data(stored: Settings, tmp_path: Path) -> None:
    bare = str(tmp_path / "bare.tar")
    back_up(stored, bare, with_key=False)
    there = Settings(data_dir=tmp_path / "there")
    assert restore(there, bare).key_missing == there.secret_key_path.absolute()
    there.secret_key_path.write_bytes(stored.secret_key_path.read_bytes())
    assert restore(there, bare, replace=True).key_missing is None
    there.secret_key_path.unlink()
    secrets.load_or_create(there.secret_key_path)
    with pytest.raises(StartupError, match="is not the key of this backup"):
        restore(there, bare, replace=True)


def test_a_backup_with_a_wrong_key_is_refused(stored: Settings, tmp_path: Path) -> None:
    wrong = stored.with_changes({"secret_key_file": tmp_path / "wrong.key"})
    with pytest.raises(StartupError, match="there is no secret_key_file"):
        back_up(wrong, str(tmp_path / "b.tar"))
    secrets.load_or_create(wrong.secret_key_path)
    with pytest.raises(StartupError, match="is not the one that the stored secrets were encrypted with"):
        back_up(wrong, str(tmp_path / "b.tar"))
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.key"]


def test_a_restore_is_refused_while_a_server_runs(archive: Path, tmp_path: Path) -> None:
    with (
        server_lock.lock_data_dir(tmp_path),
        pytest.raises(StartupError, match=r"stop it.* then `trunkline restore FILE --replace`"),
    ):
        restore(Settings(data_dir=tmp_path), str(archive))
    assert _content(tmp_path) == {}


@pytest.mark.parametrize("folder", ["", ".", "..", "/", "backups", "backups/"])
def test_a_folder_is_rejected_as_a_backup_file(
    stored: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / "backups").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartupError, match="is no plain file: name a file for the backup"):
        back_up(stored, folder)
    assert _content(tmp_path) == {}


def test_a_second_backup_to_the_same_file_is_refused(stored: Settings, tmp_path: Path) -> None:
    target = tmp_path / "b.tar"
    back_up(stored, str(target))
    before = target.read_bytes()
    holder = os.open(tmp_path / "b.tar.partial", os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(StartupError, match="another backup is being written"):
        back_up(stored, str(target))
    os.close(holder)
    assert target.read_bytes() == before
    back_up(stored, str(target))  # over what was left, and over the older one
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar"]


def _restore_error(archive: bytes, folder: Path) -> str:
    """Restore an invalid archive, which must leave no file behind; returns the error."""
    data_dir, file = folder / "data" / "in", folder / "bad.tar"
    data_dir.mkdir(parents=True, exist_ok=True)
    file.write_bytes(archive)
    with pytest.raises(StartupError) as refusal:
        restore(Settings(data_dir=data_dir), str(file))
    left = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert [name for name in left if not name.endswith((".lock", "-server"))] == ["bad.tar"], left
    return str(refusal.value)


def _with(archive: Path, *members: tarfile.TarInfo, format: int = tarfile.GNU_FORMAT) -> bytes:
    """The archive with more members after its header."""
    out = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=out, mode="w", format=format) as new:
        for each in old.getmembers():
            new.addfile(each, old.extractfile(each))
            for member in members if each.name == HEADER else ():
                new.addfile(member, io.BytesIO(bytes(member.size)))
    return out.getvalue()


def _member(name: str, kind: bytes = tarfile.REGTYPE, **facts: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for fact, value in facts.items():
        setattr(made, fact, value)
    return made


@pytest.mark.parametrize(
    ("member", "complaint"),
    [
        (_member("../../outside"), "which no backup does"),
        (_member("/etc/outside"), "which no backup does"),
        (_member(f"recordings/../../{SOUND}.wav"), "which no backup does"),
        (_member("recordings"), "which no backup does"),
        (_member("trunkline.db-wal", size=512), "which no backup does"),
        (_member("a" * 200), "which is no plain file"),
        (_member("recordings", tarfile.SYMTYPE, linkname="/etc"), "which is no plain file"),
        (_member(SOUND_FILE, tarfile.LNKTYPE, linkname="/etc/passwd"), "which is no plain file"),
        (_member("knowledge", tarfile.DIRTYPE), "which is no plain file"),
        (_member(SOUND_FILE, tarfile.CHRTYPE, devmajor=1, devminor=5), "which is no plain file"),
        (_member(SOUND_FILE, tarfile.FIFOTYPE), "which is no plain file"),
        (_member(SOUND_FILE, pax_headers={"comment": "x"}), "which is no plain file"),
        (_member(SOUND_FILE), "twice"),
        (_member("sounds/7d1b4c6e-0c8f-4a53-9b52-5f7f3c1f0a11.wav"), "is not what was backed up"),
    ],
    ids=lambda value: value.name[:30] if isinstance(value, tarfile.TarInfo) else "",
)
def test_members_that_no_backup_has_are_rejected(
    archive: Path, tmp_path: Path, member: tarfile.TarInfo, complaint: str
) -> None:
    assert complaint in _restore_error(_with(archive, member, format=tarfile.PAX_FORMAT), tmp_path)


def test_a_truncated_or_altered_archive_is_rejected(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    dice = random.Random(7)
    for length in (0, 1, 511, 512, 1024, *(dice.randrange(len(whole) - 1024) for _ in range(12))):
        _restore_error(whole[:length], tmp_path)
    compressed = gzip.compress(whole, 1, mtime=0)
    assert "cut off" in _restore_error(compressed[: len(compressed) // 2], tmp_path)
    with tarfile.open(archive) as tar:
        files = [each for each in tar.getmembers() if each.name not in (HEADER, MANIFEST)]
    for each in files:
        at = each.offset_data + each.size // 2
        altered = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        assert f"{each.name} is not what was backed up" in _restore_error(altered, tmp_path)
    _restore_error(b"no archive at all" * 1000, tmp_path)


@pytest.mark.parametrize(
    ("junk", "complaint"),
    [
        (b"", "this is no backup of Trunkline: it is empty"),
        (b"x", "this is no backup of Trunkline"),
        (b"no archive at all" * 10, "this is no backup of Trunkline"),
        (b"no archive at all" * 1000, "this is no backup of Trunkline"),
        (bytes(600), "this is no backup of Trunkline"),
        (bytes(100_000), "this is no backup of Trunkline"),
        (b"SQLite format 3\0" + bytes(8000), "this is no backup of Trunkline"),
        (b"PK\x03\x04" + b"x" * 5000, "this is no backup of Trunkline"),
        (gzip.compress(b"no archive at all", mtime=0), "this is no backup of Trunkline"),
        (gzip.compress(b"", mtime=0), "this is no backup of Trunkline: it is empty"),
        (b"\x1f\x8b" + b"x" * 5000, "this is no backup of Trunkline, or a damaged one: it cannot be unpacked"),
    ],
)
def test_files_that_are_no_backup_are_told_apart_from_truncated_backups(
    tmp_path: Path, junk: bytes, complaint: str
) -> None:
    assert _restore_error(junk, tmp_path) == complaint


def test_truncated_and_damaged_backups_are_reported(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    packed = gzip.compress(whole, 1, mtime=0)
    cut, damaged = "the archive is cut off: ", "the archive is damaged: "
    for length in (100, 511, 512, 600, 5000, len(whole) - 2000):
        assert _restore_error(whole[:length], tmp_path).startswith(cut)
    for length in (len(packed) // 3, len(packed) * 9 // 10):
        assert _restore_error(packed[:length], tmp_path).startswith(cut)
    with tarfile.open(archive) as tar:
        second = tar.getmembers()[1].offset
    assert _restore_error(whole[: second + 20] + b"?" + whole[second + 21 :], tmp_path).startswith(damaged)
    assert _restore_error(whole[:20] + b"?" + whole[21:], tmp_path).startswith(damaged)
    stored = bytearray(gzip.compress(whole, 0))  # a head of 10 bytes, then blocks behind 5 bytes with their length
    stored[10 + 5 + int.from_bytes(stored[11:13], "little") + 3] ^= 1
    assert _restore_error(bytes(stored), tmp_path).startswith(damaged)


def test_a_file_larger_than_the_disk_is_rejected_before_it_is_written(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    head = whole[: 2 * tarfile.BLOCKSIZE]
    for size in (1 << 50, (1 << 63) - 1):
        huge = _member("trunkline.db", size=size).tobuf(tarfile.GNU_FORMAT)
        assert "is too small for the backup" in _restore_error(head + huge + bytes(10_000), tmp_path)
    assert "manifest is too long" in _restore_error(
        head + _member(MANIFEST, size=1 << 40).tobuf(tarfile.GNU_FORMAT), tmp_path
    )
    assert "this is no backup" in _restore_error(
        _member(HEADER, size=1 << 40).tobuf(tarfile.GNU_FORMAT) + bytes(10_000), tmp_path
    )


def test_manifest_fields_that_are_not_printable_are_rejected(tmp_path: Path) -> None:
    for version, missing in (("\x1b[2J", []), ("1.0", ["\x1b[2J"]), ("1" * 65, [])):
        out = io.BytesIO()
        ArchiveWriter(out, BackupManifest(version, "0001", "2026", {}, missing), 0, lambda: None).close()
        assert "its manifest is invalid" in _restore_error(out.getvalue(), tmp_path)


def test_an_infinite_size_is_rejected(tmp_path: Path) -> None:
    out = io.BytesIO()
    endless: Any = float("inf")
    files = {"trunkline.db": ArchiveEntry(endless, "")}
    ArchiveWriter(out, BackupManifest("1.0", "0001", "2026", files), 0, lambda: None).close()
    assert "its manifest is invalid" in _restore_error(out.getvalue(), tmp_path)


def test_root_restores_for_the_owner_of_the_data_directory(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files that it creates are owned by the owner, also the locks and the files that are moved aside."""
    given: set[str] = set()

    def give(what: int | str | Path, user: int, group: int) -> None:
        assert (user, group) == (tmp_path.stat().st_uid, tmp_path.stat().st_gid)
        given.add(os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else str(what))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("chown", "fchown"):
        monkeypatch.setattr(os, name, give)
    settings = Settings(data_dir=tmp_path / "there")
    settings.data_dir.mkdir()
    for _ in range(2):
        restore(settings, str(archive), replace=True)
    names = {Path(each).name for each in given}
    assert {path.name for path in settings.data_dir.rglob("*")} <= names
    assert "restore.journal.partial" in names


def test_a_backup_of_a_newer_version_is_rejected(stored: Settings, tmp_path: Path) -> None:
    newer = Settings(data_dir=tmp_path / "newer")
    restore_from = str(tmp_path / "b.tar")
    back_up(stored, restore_from)
    restore(newer, restore_from)
    with closing(sqlite3.connect(newer.data_dir / "trunkline.db")) as conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999'")
        conn.commit()
    with pytest.raises(StartupError, match="written by a newer version"):
        back_up(newer, str(tmp_path / "new.tar"))
    whole = Path(restore_from).read_bytes().replace(b'"trunklineBackup": 1', b'"trunklineBackup": 2')
    assert "newer version" in _restore_error(whole, tmp_path / "bad")


def test_a_backup_of_an_older_version_is_migrated_at_the_next_start(tmp_path: Path) -> None:
    old, there = Settings(data_dir=tmp_path / "old"), Settings(data_dir=tmp_path / "there")
    old.data_dir.mkdir()
    alembic = migrations.alembic_settings()
    engine = sa.create_engine(f"sqlite:///{old.data_dir / 'trunkline.db'}", poolclass=sa.NullPool)
    with engine.begin() as conn:
        alembic.attributes["connection"] = conn
        command.upgrade(alembic, "0006")
    assert back_up(old, str(tmp_path / "b.tar"), with_key=False).manifest.revision == "0006"
    restore(there, str(tmp_path / "b.tar"))
    migrate.migrate(there.data_dir / "trunkline.db")
    assert back_up(there, str(tmp_path / "b.tar"), with_key=False).manifest.revision == migrations.HEAD


def test_a_restore_that_was_killed_between_its_moves_is_resumed(
    archive: Path, stored: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after each number of moves, until all moves are done."""
    rename = Path.rename
    for survives in range(20):
        settings = Settings(data_dir=tmp_path / str(survives))
        shutil.copytree(stored.data_dir, settings.data_dir)
        (settings.data_dir / SOUND_FILE).write_bytes(b"older")
        left = survives

        def killed(path: Path, target: Path) -> Path:
            nonlocal left
            if path.name != f"{restore_journal.JOURNAL}.partial":
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", killed)
        try:
            restore(settings, str(archive), replace=True)
            over = True
        except KeyboardInterrupt:
            over = False
        monkeypatch.setattr(Path, "rename", rename)
        if not over:
            with pytest.raises(StartupError, match="a restore was interrupted"):
                back_up(settings, str(tmp_path / "half.tar"))
        restore_journal.resume(settings.data_dir)
        found = _content(settings.data_dir)
        assert found[SOUND_FILE] == b"words"
        assert [
            content for name, content in found.items() if name.startswith("replaced-") and name.endswith(SOUND_FILE)
        ] == [b"older"]
        assert _rows(settings) == _rows(stored)
        if over:
            return
    raise AssertionError("it never came to its end")
