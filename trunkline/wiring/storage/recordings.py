"""The store of recordings, by the settings `[recordings]`."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from config.errors import StartupError
from config.secrets import read_key
from config.settings import Settings
from storage.recording_store.folder_store import FolderStore
from storage.recording_store.object_store import ObjectStore, StoreUnavailable
from storage.recording_store.recording_files import RecordingFiles
from storage.recording_store.s3_store import S3Bucket, S3RecordingStore


async def open_recordings(settings: Settings, *, reads_only: bool = False) -> RecordingFiles:
    """The recordings of a server, or of a command that `reads_only`. Works while the store is away. Raises
    `StartupError` for files of the settings that cannot be read, and without the package that the store needs."""
    reads_only = reads_only or settings.standby
    return RecordingFiles(settings.data_dir, await open_store(settings, reads_only=reads_only), read_only=reads_only)


async def open_store(settings: Settings, *, reads_only: bool = False) -> ObjectStore | None:
    """The store; None if recordings stay in the data directory. Raises as `open_recordings`."""
    if settings.recordings.folder is not None:
        store = FolderStore(settings.recordings.folder)
        if not reads_only:
            with suppress(StoreUnavailable):  # what uses it next reports that
                await store.open()
        return store
    bucket = await asyncio.to_thread(_bucket, settings)
    return None if bucket is None else await asyncio.to_thread(S3RecordingStore, bucket)


def _bucket(settings: Settings) -> S3Bucket | None:
    """Blocks."""
    recordings = settings.recordings
    if recordings.bucket is None or recordings.access_key_file is None or recordings.secret_key_file is None:
        return None
    ca = None
    if recordings.ca_file is not None:
        try:
            ca = recordings.ca_file.read_bytes()
        except OSError as error:
            raise StartupError(f"recordings.ca_file {recordings.ca_file} cannot be read: {error.strerror}") from error
    return S3Bucket(
        recordings.bucket,
        recordings.prefix,
        recordings.endpoint,
        recordings.region,
        read_key(recordings.access_key_file, "recordings.access_key_file"),
        read_key(recordings.secret_key_file, "recordings.secret_key_file"),
        ca,
    )
