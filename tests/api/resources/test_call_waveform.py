"""`/v1/calls/{id}/waveform`"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

import numpy as np

from config.clock import utc_now
from media.recording import wav_header
from storage.calls import recordings
from storage.calls.calls import Call
from tests.api.conftest import Api
from tests.calls.post_call.past_calls import past_call


async def recorded_call(api: Api, sides: bytes) -> Call:
    """An ended call whose recording has these frames."""
    call = await api.services.database.write(
        lambda conn: past_call(conn, api.organization_id, utc_now() - timedelta(hours=1))
    )
    path = recordings.path_of(api.services.settings.data_dir, call.id, call.created_at)

    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wav_header(8000, len(sides) // 4) + sides)

    await asyncio.to_thread(write)
    return call


async def test_the_peaks_of_both_sides_are_returned(api: Api) -> None:
    sides = np.zeros((320, 2), "<i2")
    sides[10] = (3277, 0)
    sides[200] = (0, -32768)
    call = await recorded_call(api, sides.tobytes())
    assert await api("GET", f"/calls/{call.id}/waveform") == (
        200,
        {"data": {"secondsPerPeak": 0.02, "caller": [0.1, 0.0], "agent": [0.0, 1.0]}},
    )


async def test_a_call_without_a_recording_has_no_waveform(api: Api) -> None:
    call = await recorded_call(api, b"")
    path = recordings.path_of(api.services.settings.data_dir, call.id, call.created_at)
    await asyncio.to_thread(path.unlink)
    assert await api("GET", f"/calls/{call.id}/waveform") == (404, {"error": "Recording not found"})
    for unknown in (uuid4(), "x"):
        assert await api("GET", f"/calls/{unknown}/waveform") == (404, {"error": "Call not found"})


async def test_a_damaged_recording_is_said_to_be_so(api: Api) -> None:
    call = await recorded_call(api, b"")
    path = recordings.path_of(api.services.settings.data_dir, call.id, call.created_at)
    await asyncio.to_thread(path.write_bytes, b"x")
    assert await api("GET", f"/calls/{call.id}/waveform") == (409, {"error": "The recording cannot be read"})
