"""`trunkline backup` and `trunkline restore` on a terminal. What they say goes to stderr: stdout may be the archive."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from typing import Final

from config.settings import Settings
from config.settings_source import DEFAULT_FILE
from storage.snapshot import UnfinishedWork
from trunkline.backup.archive import KEY, BackupManifest
from trunkline.backup.backup import back_up
from trunkline.backup.restore import Restored, restore

_POLITE: Final = 10
"""Calls come first (nice(2))."""


def run_backup(options: argparse.Namespace, settings: Settings) -> int:
    """Write a backup."""
    _end_at_once()
    os.nice(_POLITE)
    started = time.monotonic()
    used = options.config or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    written = back_up(settings, options.file, settings_file=used, with_key=not options.without_key)
    size = "" if written.size is None else f", {written.size / 1e6:.1f} MB"
    _say(f"backup written: {_counted(written.manifest)}{size} in {time.monotonic() - started:.1f} s")
    for name in written.manifest.missing:
        _say(f"deleted while the backup was made, or before it: {name}")
    if KEY in written.manifest.files:
        _say("the secret key is in it: whoever has the file can read all stored passwords. Keep it as safe as the key")
    else:
        _say(f"the secret key is not in it: keep a copy of {settings.secret_key_path} elsewhere")
    return 0


def run_restore(options: argparse.Namespace, settings: Settings) -> int:
    """Restore a backup."""
    _end_at_once()
    where = settings
    if options.data_dir is not None:  # all of it goes there, wherever the settings have their database and key
        everything = {"data_dir": options.data_dir, "secret_key_file": None, "database": {"url": None}}
        where = settings.with_changes(everything)
    restored = restore(where, options.file, replace=options.replace)
    manifest = restored.manifest
    _say(
        f"restored into {where.data_dir}: the backup of {manifest.created_at} by version {manifest.version}, "
        f"{_counted(manifest)}"
    )
    for line in _next_steps(restored):
        _say(line)
    return 0


def _next_steps(restored: Restored) -> list[str]:
    """What the operator should know before a start."""
    waits, lines = restored.unfinished, []
    if restored.kept:
        lines.append(f"what was there lies in {', '.join(map(str, restored.kept))}: remove it when all is well")
    if restored.manifest.missing:
        lines.append(f"{len(restored.manifest.missing)} files are not in the backup: deleted while it was made")
    if restored.settings is not None:
        lines.append(f"the settings file of the backup lies in {restored.settings} and is not in use")
    if restored.key_missing is not None:
        lines.append(f"the backup has no secret key: put the key file to {restored.key_missing} before the start")
    if waits != UnfinishedWork(0, 0, 0):
        lines.append(
            f"a start sends {waits.webhook_attempts} pending webhook attempts, registers {waits.registrations} numbers "
            f"and closes {waits.calls} calls as server_restart: if the other server still runs, start this one with "
            "TRUNKLINE_STANDBY=true"
        )
    return lines


def _counted(manifest: BackupManifest) -> str:
    found = Counter(name.partition("/")[0] for name in manifest.files)
    return f"database, {found['recordings']} recordings, {found['knowledge']} documents, {found['sounds']} sounds"


def _end_at_once() -> None:
    """The work runs on the main thread, where nothing else does: Ctrl-C ends it in the middle, and it tidies up."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, file=sys.stderr)
