"""Spoken samples of voices over the API: links, unknown voices, voices that fail."""

from __future__ import annotations

import io
import wave
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from config.errors import ModelError
from models.loading.catalogue import voice_id
from tests.api.conftest import Api, StartApi, fake_catalogue

PATH = f"/voices/{voice_id('flite/slt')}/sample"


async def test_a_sample_opens_with_the_key_and_with_its_link(start_api: StartApi) -> None:
    api: Api = await start_api(voice_sample=fake_catalogue().voice_sample)
    response = await api.raw("GET", PATH)
    content = await response.read()
    assert (response.status, response.content_type) == (200, "audio/wav")
    with wave.open(io.BytesIO(content)) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getnframes() > 0) == (1, 2, True)
    _, answer = await api("GET", "/voices")
    link = answer["data"][0]["sampleUrl"]
    assert link.startswith(str(api.client.make_url("/")))
    async with api.client.session.get(link) as response:
        assert (response.status, await response.read()) == (200, content)
    async with api.client.session.get(link[:-1] + ("0" if link[-1] != "0" else "1")) as response:
        assert response.status == 401


@pytest.mark.parametrize("item", ["x", "0b9f0d0c-7f4e-4d5c-9a55-3b0d4c1f2a6e"])
async def test_an_unknown_voice_has_no_sample(start_api: StartApi, item: str) -> None:
    api: Api = await start_api(voice_sample=fake_catalogue().voice_sample)
    assert await api("GET", f"/voices/{item}/sample") == (404, {"error": "Voice not found"})


async def test_a_voice_that_fails_is_503_and_the_cause_is_in_the_log(start_api: StartApi) -> None:
    async def lost(_voice: UUID) -> bytes:
        raise ModelError("gpu refuses connections")

    api: Api = await start_api(voice_sample=lost)
    with capture_logs() as logs:
        response = await api.raw("GET", PATH)
    assert (response.status, response.headers["Retry-After"]) == (503, "10")
    assert (await response.json())["error"] == "The voice cannot speak now. Please try again later."
    (failed,) = [each for each in logs if each["event"] == "voice.sample_failed"]
    assert failed["error"] == "gpu refuses connections"


async def test_players_ask_for_the_head_and_for_ranges(start_api: StartApi) -> None:
    api: Api = await start_api(voice_sample=fake_catalogue().voice_sample)
    whole = await (await api.raw("GET", PATH)).read()
    head = await api.raw("HEAD", PATH)
    assert (head.status, head.content_length, head.headers["Accept-Ranges"]) == (200, len(whole), "bytes")
    first = await api.raw("GET", PATH, headers={"Range": "bytes=0-1"})
    assert (first.status, first.headers["Content-Range"]) == (206, f"bytes 0-1/{len(whole)}")
    assert await first.read() == whole[:2]
    last = await api.raw("GET", PATH, headers={"Range": "bytes=-10"})
    assert (last.status, await last.read()) == (206, whole[-10:])
    changed = await api.raw("GET", PATH, headers={"Range": "bytes=0-1", "If-Range": '"other"'})
    assert (changed.status, await changed.read()) == (200, whole)
    beyond = await api.raw("GET", PATH, headers={"Range": f"bytes={len(whole)}-"})
    assert (beyond.status, beyond.headers["Content-Range"]) == (416, f"bytes */{len(whole)}")


PREVIEW = f"/voices/{voice_id('flite/slt')}/preview"


async def test_a_voice_speaks_a_given_text_at_a_given_speed(start_api: StartApi) -> None:
    asked: list[tuple[str, float]] = []
    catalogue = fake_catalogue()

    async def preview(voice: UUID, text: str, speed: float) -> bytes:
        asked.append((text, speed))
        return await catalogue.voice_preview(voice, text, speed)

    api: Api = await start_api(voice_preview=preview)
    response = await api.raw("GET", f"{PREVIEW}?text=Good%20evening&speed=1.2")
    assert (response.status, response.content_type) == (200, "audio/wav")
    with wave.open(io.BytesIO(await response.read())) as sound:
        assert sound.getnframes() > 0
    assert asked == [("Good evening", 1.2)]
    assert (await api.raw("GET", PREVIEW)).status == 200


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("text=", "text"),
        (f"text={'x' * 301}", "text"),
        ("speed=2", "speed"),
        ("speed=fast", "speed"),
        ("speed=nan", "speed"),
    ],
)
async def test_a_preview_is_bounded(api: Api, query: str, field: str) -> None:
    status, answer = await api("GET", f"{PREVIEW}?{query}")
    assert (status, [each["field"] for each in answer["details"]]) == (400, [field])


@pytest.mark.parametrize("item", ["x", "0b9f0d0c-7f4e-4d5c-9a55-3b0d4c1f2a6e"])
async def test_an_unknown_voice_has_no_preview(start_api: StartApi, item: str) -> None:
    api: Api = await start_api(voice_preview=fake_catalogue().voice_preview)
    assert await api("GET", f"/voices/{item}/preview") == (404, {"error": "Voice not found"})
