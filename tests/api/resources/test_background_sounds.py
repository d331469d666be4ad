"""`/v1/background-sounds`: uploads are stored as loops and deleted with their file."""

from __future__ import annotations

import asyncio
import io
import os
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import soundfile

from media.audio_port import Samples
from media.background.decoder import decode_in_process
from media.background.files import crossfade_loop, read_wav
from storage import tables
from storage.background_sounds import sounds
from storage.background_sounds.sounds import BackgroundSoundFields
from tests.api.conftest import Api, StartApi
from tests.sipcore.tones import loudest_hz, tone
from tests.trunkline.server_process import until

PRESET = "7b4e9d31-cace-5a27-bbad-a4ea067fec4c"
MIB = 1024 * 1024


def sound_file(seconds: float = 1.0, kind: str = "WAV", codec: str = "PCM_16", rate: int = 16000) -> bytes:
    """A file with a tone of 700 Hz."""
    data = io.BytesIO()
    soundfile.write(data, tone(rate, 700, seconds), rate, format=kind, subtype=codec)
    return data.getvalue()


WAV = sound_file()


def upload(content: bytes = WAV, **changes: Any) -> dict[str, Any]:
    """The body of an upload; a change to ... leaves the field out."""
    body = {
        "name": "Harbour",
        "filename": "harbour.wav",
        "mimeType": "audio/wav",
        "fileSize": len(content),
        "fileBase64": b64encode(content).decode(),
    }
    return {name: value for name, value in (body | changes).items() if value is not ...}


async def listed(api: Api) -> list[dict[str, Any]]:
    status, answer = await api("GET", "/background-sounds")
    assert (status, set(answer)) == (200, {"data"})
    data: list[dict[str, Any]] = answer["data"]
    return data


def files(api: Api) -> list[str]:
    """The files of all sounds."""
    folder = folder_of(api)
    return sorted(os.listdir(folder)) if folder.exists() else []


def folder_of(api: Api) -> Path:
    return api.services.settings.data_dir / "sounds"


async def stored(api: Api, sound_id: str) -> Samples:
    return await asyncio.to_thread(read_wav, folder_of(api) / f"{sound_id}.wav")


async def with_preset(api: Api) -> str:
    """Stores a preset, as the start of a server does; returns its id."""
    fields = BackgroundSoundFields(name="Office", description="People", file_size=960044, duration_ms=30000)
    await api.services.database.write(lambda conn: sounds.store_preset(conn, PRESET, fields))
    return PRESET


def rejected_fields(answer: tuple[int, Any]) -> list[str]:
    """The fields that a validation error names."""
    status, body = answer
    assert (status, body["error"]) == (400, "Validation failed")
    return [each["field"] for each in body["details"]]


@pytest.mark.parametrize(
    ("content", "mime_type"),
    [
        (WAV, "audio/wav"),
        (sound_file(kind="FLAC", rate=44100), "audio/flac"),
        (sound_file(kind="MP3", codec="MPEG_LAYER_III", rate=44100), "audio/mpeg"),
        (sound_file(kind="OGG", codec="VORBIS", rate=44100), "audio/ogg"),
        (sound_file(kind="OGG", codec="OPUS", rate=48000), "AUDIO/Ogg; codecs=opus"),
    ],
    ids=["WAV", "FLAC", "MP3", "Ogg Vorbis", "Ogg Opus"],
)
async def test_an_upload_is_returned_and_stored_as_a_loop(api: Api, content: bytes, mime_type: str) -> None:
    created = await api.create("/background-sounds", upload(content, mimeType=mime_type, description="Gulls"))
    seconds = created["durationSeconds"]
    assert created == {
        "id": created["id"],
        "name": "Harbour",
        "description": "Gulls",
        "isSystemPreset": False,
        "fileSize": len(content),
        "durationSeconds": pytest.approx(1.0, abs=0.06),
        "createdAt": created["createdAt"],
    }
    assert await listed(api) == [created]
    assert files(api) == [f"{created['id']}.wav"]
    samples = await stored(api, created["id"])
    assert len(samples) == pytest.approx((seconds - 0.25) * 16000, abs=20), "its end fades into its beginning"
    assert loudest_hz(samples, 16000) == pytest.approx(700, abs=3)


async def test_a_large_file_arrives_byte_by_byte(api: Api) -> None:
    content = sound_file(90.0)
    assert len(b64encode(content)) > 3 * MIB, "decoded in several pieces"
    created = await api.create("/background-sounds", upload(content))
    expected = await asyncio.to_thread(lambda: crossfade_loop(decode_in_process(content)))
    assert np.array_equal(await stored(api, created["id"]), expected)


@pytest.mark.parametrize("given", [..., ""])
async def test_a_missing_description_is_empty(api: Api, given: Any) -> None:
    assert (await api.create("/background-sounds", upload(description=given)))["description"] == ""


@pytest.mark.parametrize("given", ["x" * 255, "🙂" * 255, "x"])
async def test_names_have_1_to_255_characters(api: Api, given: str) -> None:
    created = await api.create("/background-sounds", upload(name=given, filename=given))
    assert created["name"] == given


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("name", (..., None, "", "x" * 256, 1, ["x"])),
        ("description", (None, "x" * 2001, 1, True, {})),
        ("filename", (..., None, "", "x" * 256, 1)),
        ("mimeType", (..., None, "", "audio/aac", "audio", "text/plain; audio/wav", 1)),
        ("fileSize", (..., None, len(WAV) - 1, len(WAV) + 1, 0, -1, 20 * MIB + 1, 1.5, str(len(WAV)), True, 10**30)),
        ("fileBase64", (..., None, 1, True, ["UklG"], "UklG=", "UklG\n", "Ukl", "U===", "UklG====", "U-_G", "Uklé")),
        ("fileBase64", ("Uk=G", "U=lG", "=klG", "====", "Ukl=UklG", "UklG" * (MIB // 4 - 1) + "Ukk=" + "UklG")),
        ("unheardOf", (1,)),
    ],
)
async def test_a_wrong_field_of_a_sound_is_named_and_nothing_is_stored(
    api: Api, field: str, values: tuple[Any, ...]
) -> None:
    for value in values:
        assert rejected_fields(await api("POST", "/background-sounds", upload(**{field: value}))) == [field], value
    assert (await listed(api), files(api)) == ([], [])


async def test_all_wrong_fields_are_named_together(api: Api) -> None:
    body = upload(name="", mimeType="audio/aac", fileSize=1)
    assert sorted(rejected_fields(await api("POST", "/background-sounds", body))) == ["fileSize", "mimeType", "name"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "The file is empty"),
        (b"Not a sound at all", "The file is not WAV, MP3, Ogg or FLAC"),
        (WAV[:44], "The file holds no sound"),
        (sound_file(301.0, codec="PCM_U8", rate=4000), "The sound is longer than 300 seconds"),
        (bytes(20 * MIB), "The file is not WAV, MP3, Ogg or FLAC"),
    ],
    ids=["empty", "text", "no sound", "too long", "of the largest size"],
)
async def test_a_file_that_cannot_be_decoded_is_rejected_with_the_reason(
    api: Api, content: bytes, message: str
) -> None:
    status, answer = await api("POST", "/background-sounds", upload(content))
    assert (status, answer["details"]) == (400, [{"field": "fileBase64", "message": message}])
    assert (await listed(api), files(api)) == ([], [])


async def test_a_file_over_20_mib_is_rejected_and_a_body_over_28_mib_is_413(api: Api) -> None:
    content = bytes(20 * MIB + 1)
    assert rejected_fields(await api("POST", "/background-sounds", upload(content, fileSize=44))) == ["fileBase64"]
    assert rejected_fields(await api("POST", "/background-sounds", upload(content))) == ["fileBase64", "fileSize"]
    status, answer = await api("POST", "/background-sounds", upload(bytes(21 * MIB)))
    assert (status, answer) == (413, {"error": "Request body is too large"})


async def test_the_list_has_no_pages_and_shows_the_newest_first(api: Api) -> None:
    preset = await with_preset(api)
    own = [(await api.create("/background-sounds", upload(name=f"{number}")))["id"] for number in range(3)]
    assert rejected_fields(await api("GET", "/background-sounds?limit=1&offset=1")) == ["limit", "offset"]
    status, answer = await api("GET", "/background-sounds")
    assert status == 200
    assert [each["id"] for each in answer["data"]] == [*reversed(own), preset]
    assert [each["isSystemPreset"] for each in answer["data"]] == [False, False, False, True]
    assert answer["data"][-1] | {"createdAt": None} == {
        "id": preset,
        "name": "Office",
        "description": "People",
        "isSystemPreset": True,
        "fileSize": 960044,
        "durationSeconds": 30.0,
        "createdAt": None,
    }


async def test_deleting_a_sound_removes_its_file_and_clears_it_in_agents(api: Api) -> None:
    deleted, other = [await api.create("/background-sounds", upload()) for _ in range(2)]
    agents = [await api.create("/agents", {"name": "a", "backgroundSoundId": each["id"]}) for each in (deleted, other)]
    await api("GET", "/agents")  # fills the JSON cache
    status, answer = await api("DELETE", f"/background-sounds/{deleted['id'].upper()}")
    assert (status, answer) == (200, {"data": {"id": deleted["id"], "deleted": True}})
    assert await listed(api) == [other]
    await until(lambda: files(api) == [f"{other['id']}.wav"])
    _, answer = await api("GET", "/agents")
    assert [each["backgroundSoundId"] for each in answer["data"]] == [other["id"], None]
    _, answer = await api("GET", f"/agents/{agents[0]['id']}")
    assert answer["data"]["backgroundSoundId"] is None
    assert answer["data"]["updatedAt"] > agents[0]["updatedAt"]
    assert (await api("DELETE", f"/background-sounds/{deleted['id']}"))[0] == 404


async def test_a_preset_cannot_be_deleted(api: Api) -> None:
    preset = await with_preset(api)
    agent = await api.create("/agents", {"name": "a", "backgroundSoundId": preset})
    status, answer = await api("DELETE", f"/background-sounds/{preset}")
    assert status == 400
    assert answer == {
        "error": "Validation failed",
        "details": [{"field": "id", "message": "System presets cannot be deleted"}],
    }
    assert [each["id"] for each in await listed(api)] == [preset]
    assert (await api("GET", f"/agents/{agent['id']}"))[1]["data"] == agent


async def test_a_sound_of_another_organization_is_not_found(api: Api) -> None:
    own = await api.create("/background-sounds", upload())
    other = await api.as_another_organization()
    for client, item in ((other, own["id"]), (api, str(uuid4())), (api, "x"), (api, f"{{{own['id']}}}")):
        answer = await client("DELETE", f"/background-sounds/{item}")
        assert answer == (404, {"error": "Background sound not found"})
    assert (await listed(api), await listed(other)) == ([own], [])


async def test_agents_accept_only_presets_and_sounds_of_their_organization(api: Api) -> None:
    preset, own = await with_preset(api), (await api.create("/background-sounds", upload()))["id"]
    other = await api.as_another_organization()
    for client, usable in ((api, {preset, own}), (other, {preset})):
        agent = await client.create("/agents", {"name": "a"})
        for sound in (preset, own, str(uuid4())):
            created = await client("POST", "/agents", {"name": "a", "backgroundSoundId": sound})
            changed = await client("PATCH", f"/agents/{agent['id']}", {"backgroundSoundId": sound.upper()})
            for status, answer in (created, changed):
                if sound in usable:
                    assert answer["data"]["backgroundSoundId"] == sound
                else:
                    assert rejected_fields((status, answer)) == ["backgroundSoundId"]


async def test_a_repeated_upload_of_a_sound_stores_one_file(api: Api) -> None:
    async def send(name: str) -> bytes:
        response = await api.raw("POST", "/background-sounds", upload(name=name), headers={"Idempotency-Key": "k"})
        assert response.status == 201
        return await response.read()

    assert len({*await asyncio.gather(send("a"), send("b"), send("c")), await send("d")}) == 1
    assert (len(await listed(api)), len(files(api))) == (1, 1)


async def test_uploads_at_the_same_time_are_all_stored(api: Api) -> None:
    created = await asyncio.gather(*(api.create("/background-sounds", upload(name=f"{number}")) for number in range(5)))
    assert {each["id"] for each in await listed(api)} == {each["id"] for each in created}
    assert files(api) == sorted(f"{each['id']}.wav" for each in created)


async def test_a_restart_keeps_sounds(start_api: StartApi, api: Api) -> None:
    created = await api.create("/background-sounds", upload())
    await api.client.close()
    again: Api = replace(await start_api(fresh=False), key=api.key)
    assert await listed(again) == [created]


async def test_an_upload_whose_row_cannot_be_stored_leaves_no_file(api: Api) -> None:
    await api.services.database.write(lambda conn: tables.background_sounds.drop(conn))
    assert (await api("POST", "/background-sounds", upload()))[0] == 500
    assert files(api) == []


async def test_a_sound_that_cannot_be_written_is_503(api: Api) -> None:
    folder_of(api).write_text("in the way")
    response = await api.raw("POST", "/background-sounds", upload())
    assert (response.status, await response.json()) == (503, {"error": "Service temporarily unavailable"})
    assert int(response.headers["Retry-After"]) > 0
    assert await listed(api) == []
