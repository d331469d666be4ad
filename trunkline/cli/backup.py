"""`trunkline backup` and `trunkline restore`. Messages go to stderr, because stdout may be the archive."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from typing import Final

from config.settings import Settings
from config.settings_loader import DEFAULT_FILE
from storage.database_snapshot import UnfinishedWork
from trunkline.backup.archive import KEY, BackupManifest
from trunkline.backup.backup import back_up
from trunkline.backup.restore import RestoreSummary, restore

_NICENESS: Final = 10
"""Lower priority than a running server's (nice(2))."""


def run_backup(options: argparse.Namespace, settings: Settings) -> int:
    """Write a backup."""
    _interrupt_on_signals()
    os.nice(_NICENESS)
    started = time.monotonic()
    settings_file = options.config or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    backup = back_up(settings, options.file, settings_file=settings_file, with_key=not options.without_key)
    size = "" if backup.size is None else f", {backup.size / 1e6:.1f} MB"
    _print(f"backup written: {_content(backup.manifest)}{size} in {time.monotonic() - started:.1f} s")
    for name in backup.manifest.missing:
        _print(f"deleted before or during the backup: {name}")
    if KEY in backup.manifest.files:
        _print(
            "the backup contains the secret key, with which all stored passwords can be read: keep the file as safe "
            "as the key"
        )
    else:
        _print(f"the backup does not contain the secret key: keep a copy of {settings.secret_key_path} elsewhere")
    return 0


def run_restore(options: argparse.Namespace, settings: Settings) -> int:
    """Restore a backup."""
    _interrupt_on_signals()
    if options.data_dir is not None:  # also the database and the key, wherever the settings have them
        everything = {"data_dir": options.data_dir, "secret_key_file": None, "database": {"url": None}}
        settings = settings.with_changes(everything)
    restored = restore(settings, options.file, replace=options.replace)
    manifest = restored.manifest
    _print(
        f"restored into {settings.data_dir}: the backup of {manifest.created_at} by version {manifest.version}, "
        f"{_content(manifest)}"
    )
    for line in _next_steps(restored):
        _print(line)
    return 0


def _next_steps(restored: RestoreSummary) -> list[str]:
    """Lines with what the operator should know before a start."""
    unfinished, lines = restored.unfinished, []
    if restored.replaced:
        lines.append(
            f"the previous data is in {', '.join(map(str, restored.replaced))}: remove it when it is no longer needed"
        )
    if restored.manifest.missing:
        lines.append(
            f"{len(restored.manifest.missing)} files are not in the backup: they were deleted before or during it"
        )
    if restored.settings is not None:
        lines.append(f"the settings file of the backup is {restored.settings}; it is not in use")
    if restored.key_missing is not None:
        lines.append(f"the backup has no secret key: copy the key file to {restored.key_missing} before the start")
    if unfinished != UnfinishedWork(0, 0, 0):
        lines.append(
            f"a start sends {unfinished.webhook_attempts} pending webhook attempts, registers "
            f"{unfinished.registrations} numbers and closes {unfinished.calls} calls as server_restart: if the other "
            "server still runs, start this one with TRUNKLINE_STANDBY=true"
        )
    return lines


def _content(manifest: BackupManifest) -> str:
    counts = Counter(name.partition("/")[0] for name in manifest.files)
    return f"database, {counts['recordings']} recordings, {counts['knowledge']} documents, {counts['sounds']} sounds"


def _interrupt_on_signals() -> None:
    """Make SIGINT and SIGTERM raise `KeyboardInterrupt` at once, because the work blocks the event loop; its `finally`
    blocks clean up."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _print(line: str) -> None:
    print(line, file=sys.stderr)
