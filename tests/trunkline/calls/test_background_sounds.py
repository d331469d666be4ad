"""Background sounds with a complete server: presets of the first start, uploads, playback in calls, restarts."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from base64 import b64encode
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import soundfile

from tests.sipcore.tones import loudest_hz, tone
from tests.transcripts import without_times
from tests.trunkline.api_client import Client
from tests.trunkline.conftest import Office
from tests.trunkline.recording_analysis import audible
from tests.trunkline.sip_phone import calling

pytestmark = pytest.mark.asyncio(loop_scope="package")
PRESETS = ["Cafe", "Office", "Rain", "White noise"]
FADE_PACKETS = 15
"""The sound is faded in for 200 ms, after it has been read."""


async def uploaded(client: Client, hz: float) -> str:
    """Upload a tone with a peak of 8000; returns the sound's id."""
    data = io.BytesIO()
    soundfile.write(data, tone(16000, hz, 2.0), 16000, format="FLAC")
    content = data.getvalue()
    body = {"name": f"{hz} Hz", "filename": "tone.flac", "mimeType": "audio/flac", "fileSize": len(content)}
    made = await client.v1("POST", "background-sounds", body | {"fileBase64": b64encode(content).decode()})
    return str(made["id"])


async def listed(client: Client) -> list[dict[str, Any]]:
    """All sounds; the list is not paged."""
    found: list[dict[str, Any]] = await client.v1("GET", "background-sounds")
    return found


async def test_a_fresh_server_has_its_presets(office: Office) -> None:
    presets = [each for each in await listed(office.client) if each["isSystemPreset"]]
    assert sorted(each["name"] for each in presets) == PRESETS
    for each in presets:
        path = office.server.data_dir / "sounds" / f"{each['id']}.wav"
        assert path.stat().st_size == each["fileSize"]
        assert each["durationSeconds"] >= 20
        assert each["description"]


@pytest.mark.parametrize(("hz", "volume"), [(620, 1.0), (940, 0.25)])
async def test_the_caller_hears_the_agents_background_sound_at_its_volume(
    office: Office, hz: float, volume: float
) -> None:
    sound = await uploaded(office.client, hz)
    agent = await office.client.agent(backgroundSoundId=sound, backgroundSoundVolume=volume)
    number = f"7{hz:.0f}"
    await office.client.number(number, agent)
    async with calling(office.server.target, number) as call:
        while not audible(await call.hears(5), 8000).all():
            pass
        await call.hears(FADE_PACKETS)
        heard = await call.hears(140)  # longer than the sound: it begins again
        await call.hang_up()
    parts = heard[: len(heard) // 2000 * 2000].reshape(-1, 2000).astype(np.float64)
    assert [loudest_hz(part, 8000) for part in parts] == pytest.approx([hz] * len(parts), abs=5)
    peaks = np.sqrt(2 * np.mean(parts**2, axis=1))
    assert np.median(peaks) == pytest.approx(8000 * volume, rel=0.05)
    assert peaks.min() > 8000 * volume * 0.6, "where its end fades into its beginning"


async def test_a_call_continues_without_a_sound_that_cannot_be_read(office: Office) -> None:
    sound = await uploaded(office.client, 500)
    (office.server.data_dir / "sounds" / f"{sound}.wav").unlink()
    agent = await office.client.agent(
        backgroundSoundId=sound, firstSpeaker="agent", agentGreeting="Hello.", agentGreetingEnabled=True
    )
    await office.client.number("7500", agent)
    since = office.server.log.mark()
    async with calling(office.server.target, "7500") as call:
        event = await office.server.event("call.without_background", since=since)
        await office.server.event("turn.agent", since=since, call_id=event["call_id"])
        await call.hang_up()
    ended = await office.server.event("call.ended", since=since, call_id=event["call_id"])
    assert (ended["reason"], event["sound_id"], event["level"]) == ("customer_ended", sound, "warning")
    assert len(office.server.log.all("call.without_background", since)) == 1
    stored = await office.client.call(event["call_id"])
    assert without_times(stored["transcript"]) == [{"role": "assistant", "content": "Hello."}]


async def test_a_restart_keeps_all_sound_files(branch: Office) -> None:
    own = await uploaded(branch.client, 700)
    before = await listed(branch.client)
    folder = branch.server.data_dir / "sounds"
    rain = next(each["id"] for each in before if each["name"] == "Rain")
    whole = (folder / f"{rain}.wav").read_bytes()
    names = {path.name for path in folder.iterdir()}
    branch.server.signal(signal.SIGTERM)
    assert await branch.server.ended() == 0
    (folder / f"{rain}.wav").unlink()
    unknown = f"{uuid4()}.wav"
    (folder / unknown).write_bytes(whole)
    cut_off = folder / ".sound-cut-off"
    cut_off.write_bytes(whole)
    os.utime(cut_off, (0, 0))  # a new one may be a write of another node
    since = branch.server.log.mark()
    await branch.server.start()
    assert await listed(branch.client) == before
    assert own in {each["id"] for each in before}
    assert {path.name for path in folder.iterdir()} == names | {unknown}
    assert await asyncio.to_thread((folder / f"{rain}.wav").read_bytes) == whole
    assert [each["preset"] for each in await branch.server.log.events_of("sounds.preset_made", 1, since=since)] == [
        "rain"
    ]
