"""Handlers of `/background-sounds`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from aiohttp import web

from api.http.range_requests import RangeFileResponse
from api.resources.accounts.author import author_of
from api.resources.sounds.sound_decoding import decode_sound
from api.routing.route import (
    CheckedRequest,
    DataResponse,
    DeletedResponse,
    FileResponse,
    ListResponse,
    NoQuery,
    RequestContext,
    Route,
)
from api.schemas.background_sounds import BackgroundSound, BackgroundSoundCreate
from api.schemas.file_upload import MAX_UPLOAD_BODY
from config.errors import FieldProblem, Invalid, NotFound
from media.audio_port import Samples
from media.background.files import MAX_SECONDS, InvalidSound, crossfade_loop, duration_seconds
from storage.background_sounds import sounds
from storage.background_sounds.sounds import BackgroundSoundFields


@dataclass(frozen=True)
class StoredSoundFile:
    """The file of an upload, stored before its row."""

    id: str
    duration_ms: int
    stored_bytes: int


async def store_file(checked: CheckedRequest[BackgroundSoundCreate, NoQuery]) -> StoredSoundFile:
    """Decode the upload and store it as a loop. Raises `Invalid` for `fileBase64` if it cannot be decoded."""
    try:
        samples = await decode_sound(checked.owner, checked.body.file_base64, MAX_SECONDS)
    except InvalidSound as error:
        raise Invalid([FieldProblem("fileBase64", str(error))]) from error
    sound_id = str(uuid4())
    stored_bytes = await asyncio.to_thread(_store, checked.services.settings.data_dir, sound_id, samples)
    return StoredSoundFile(sound_id, round(duration_seconds(samples) * 1000), stored_bytes)


def _store(data_dir: Path, sound_id: str, samples: Samples) -> int:
    return sounds.write_file(data_dir, sound_id, crossfade_loop(samples))


async def remove_file(checked: CheckedRequest[BackgroundSoundCreate, NoQuery], file: StoredSoundFile) -> None:
    """Remove the file of an upload whose row could not be stored."""
    await asyncio.to_thread(sounds.remove_file, checked.services.settings.data_dir, file.id)


def create(context: RequestContext[BackgroundSoundCreate, NoQuery]) -> BackgroundSound:
    """POST /background-sounds"""
    body = context.body
    file: StoredSoundFile = context.prepared
    fields = BackgroundSoundFields(
        name=body.name,
        description=body.description,
        file_size=body.file_size,
        duration_ms=file.duration_ms,
        stored_bytes=file.stored_bytes,
    )
    return BackgroundSound.of(sounds.create(context.conn, context.owner, file.id, fields))


def list_all(context: RequestContext[None, NoQuery]) -> list[BackgroundSound]:
    """GET /background-sounds"""
    return [BackgroundSound.of(each) for each in sounds.all_for(context.conn, context.owner)]


def audio(context: RequestContext[None, NoQuery]) -> web.StreamResponse:
    """GET /background-sounds/{id}/audio"""
    stored = sounds.get(context.conn, context.owner, context.item)
    if stored is None:
        raise NotFound("Background sound not found")
    path = sounds.path_of(context.services.settings.data_dir, stored.id)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise NotFound("Background sound not found") from None
    return RangeFileResponse(path, size, context.request, "audio/wav")


def delete(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /background-sounds/{id}"""
    conn, owner, sound_id = context.conn, context.owner, context.item
    stored = sounds.get(conn, owner, sound_id)
    if stored is None:
        raise NotFound("Background sound not found")
    if stored.organization_id is None:
        raise Invalid([FieldProblem("id", "System presets cannot be deleted")])
    sounds.delete(conn, owner, sound_id, author=author_of(context))
    data_dir = context.services.settings.data_dir

    def remove_on_thread() -> None:
        asyncio.get_running_loop().run_in_executor(None, sounds.remove_file, data_dir, sound_id)

    context.after_commit.append(remove_on_thread)


ROUTES = (
    Route(
        method="POST",
        path="/background-sounds",
        quotas=("sounds", "sound_bytes"),
        name="createBackgroundSound",
        role="editor",
        tag="Background sounds",
        summary="Upload a background sound",
        description="WAV, MP3, Ogg (Vorbis or Opus) or FLAC, at most 20 MiB and 300 seconds. It is played in a loop: "
        "its end is faded into its beginning.",
        handler=create,
        prepare=store_file,
        undo=remove_file,
        body=BackgroundSoundCreate,
        example={
            "name": "Hum",
            "description": "A very short one",
            "filename": "hum.wav",
            "mimeType": "audio/wav",
            "fileSize": 108,
            "fileBase64": "UklGRmQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YUAAAACAnKicgGRYZICc"
            "qJyAZFhkgJyonIBkWGSAnKicgGRYZICcqJyAZFhkgJyonIBkWGSAnKicgGRYZICcqJyAZFhk",
        },
        max_body=MAX_UPLOAD_BODY,
        response=DataResponse(BackgroundSound),
        status=201,
    ),
    Route(
        method="GET",
        path="/background-sounds",
        name="listBackgroundSounds",
        role="viewer",
        tag="Background sounds",
        summary="List background sounds, system presets and the organization's own, newest first",
        handler=list_all,
        response=ListResponse(BackgroundSound),
    ),
    Route(
        method="GET",
        path="/background-sounds/{id}/audio",
        name="getBackgroundSoundAudio",
        role="viewer",
        tag="Background sounds",
        summary="Get the audio of a background sound",
        description="The loop as calls play it, as a mono WAV file.",
        handler=audio,
        item="Background sound",
        response=FileResponse("audio/wav"),
    ),
    Route(
        method="DELETE",
        path="/background-sounds/{id}",
        name="deleteBackgroundSound",
        role="editor",
        tag="Background sounds",
        summary="Delete a background sound",
        description="Agents with this sound have no background sound afterwards. System presets cannot be deleted.",
        handler=delete,
        item="Background sound",
        response=DeletedResponse(),
        errors=(400,),
    ),
)
