"""`trunkline backup` and `trunkline restore`. Messages go to stderr, because stdout may be the archive."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from config.settings_loader import DEFAULT_FILE
from storage.database_snapshot import UnfinishedWork
from trunkline.backup.archive import KEY, BackupManifest
from trunkline.backup.backup import back_up
from trunkline.backup.restore import RestoreSummary
from trunkline.backup.restore import restore as put_in_place
from trunkline.cli.framework.commands import Command, Invocation
from trunkline.cli.terminal.progress import progress

if TYPE_CHECKING:
    from config.settings import Settings

_NICENESS: Final = 10
"""Lower priority than a running server's (nice(2))."""


@click.command(
    cls=Command,
    takes="invocation",
    examples=("trunkline backup trunkline.tgz", "trunkline backup - | ssh backup-host 'cat > trunkline.tar'"),
)
@click.argument("file", metavar="FILE", help="backup file, compressed if its name ends in .gz or .tgz; - for stdout")
@click.option(
    "--without-key", is_flag=True, help="leave out the secret key, which a restore needs to decrypt stored passwords"
)
async def backup(invocation: Invocation, file: str, without_key: bool) -> int:
    """Write all stored data to one file, also while the server runs."""
    settings = invocation.settings
    _interrupt_on_signals()
    os.nice(_NICENESS)
    started = time.monotonic()
    settings_file = invocation.config or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
    with progress() as display:
        written = back_up(
            settings,
            file,
            settings_file=settings_file,
            with_key=not without_key,
            on_progress=lambda done, total: display.show("backup", done, total),
        )
    size = "" if written.size is None else f", {written.size / 1e6:.1f} MB"
    _print(f"backup written: {_content(written.manifest)}{size} in {time.monotonic() - started:.1f} s")
    if written.in_store:
        _print(
            f"{written.in_store} recordings are not in the backup: they are in {settings.recordings.url}, or wait on "
            "the disks of other nodes; back that up by its own means"
        )
    for name in written.manifest.missing:
        _print(f"deleted before or during the backup: {name}")
    if KEY in written.manifest.files:
        _print(
            "the backup contains the secret key, with which all stored passwords can be read: keep the file as safe "
            "as the key"
        )
    else:
        _print(f"the backup does not contain the secret key: keep a copy of {settings.secret_key_path} elsewhere")
    return 0


@click.command(
    cls=Command,
    examples=("trunkline restore trunkline.tgz --replace", "trunkline restore trunkline.tgz --data-dir /srv/trunkline"),
)
@click.argument("file", metavar="FILE", help="backup file; - for stdin")
@click.option(
    "--data-dir",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="data directory to restore to, instead of the one in the settings",
)
@click.option(
    "--replace", is_flag=True,
    help="move existing data aside; without this option the data directory must hold no data",
)  # fmt: skip
async def restore(settings: Settings, file: str, data_dir: Path | None, replace: bool) -> int:
    """Restore a backup; no server may be running on the data directory."""
    _interrupt_on_signals()
    if data_dir is not None:  # also the database and the key, wherever the settings have them
        everything = {"data_dir": data_dir, "secret_key_file": None, "database": {"url": None}}
        settings = settings.with_changes(everything)
    with progress() as display:
        restored = put_in_place(
            settings,
            file,
            replace=replace,
            on_progress=lambda done, total: display.show("restore", done, total),
        )
    manifest = restored.manifest
    _print(
        f"restored into {settings.data_dir}: the backup of {manifest.created_at} by version {manifest.version}, "
        f"{_content(manifest)}"
    )
    if settings.recordings.url is not None:
        _print(
            f"recordings in {settings.recordings.url} were not touched; the server deletes there what it deletes "
            "from its database: start a copy of a running server with TRUNKLINE_STANDBY=true"
        )
    for line in _next_steps(restored):
        _print(line)
    return 0


def _next_steps(restored: RestoreSummary) -> list[str]:
    """Lines with what the operator should know before a start."""
    unfinished, lines = restored.unfinished, []
    if restored.server is not None:
        lines.append(f"the rows of {restored.server} are those of the backup")
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
