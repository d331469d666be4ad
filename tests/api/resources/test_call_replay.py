"""`/v1/calls/{id}/replay`: what is ordered, and which calls cannot be replayed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from api.schemas.call_replay import CallReplay
from api.services import ReplayOrder
from config.clock import utc_now
from media.turn_taking.settings import TurnSettings
from storage import tables
from storage.calls import calls, recordings
from storage.recording_store.folder_store import FolderStore
from storage.recording_store.recording_files import RecordingFiles
from tests.api.conftest import Api, StartApi
from tests.calls.post_call.past_calls import past_call
from tests.fakes.fake_replayer import FakeReplayer


async def recorded_call(api: Api, agent_id: str | None = None, version: int | None = None) -> calls.Call:
    """An ended call of an agent, with a recording's file."""

    def work(conn: sa.Connection) -> calls.Call:
        call = past_call(conn, api.organization_id, utc_now())
        changes = {"agent_id": agent_id, "agent_version": version}
        conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call.id).values(**changes))
        return call

    call = await api.services.database.write(work)
    path = recordings.path_of(api.services.settings.data_dir, call.id, call.created_at)
    await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
    await asyncio.to_thread(path.write_bytes, b"RIFF")
    return call


async def test_what_the_body_lacks_is_as_in_the_version_of_the_call(start_api: StartApi) -> None:
    replayer = FakeReplayer()
    api: Api = await start_api(replay=replayer.replay)
    agent = await api.create("/agents", {"name": "Anna", "turnEndpointDelay": 300, "languageHint": "en"})
    await api("PATCH", f"/agents/{agent['id']}", {"turnEndpointDelay": 900, "minTurnDuration": 80})
    for version, source, delay, shortest in ((1, "version", 300, 50), (None, "agent", 900, 80)):
        call = await recorded_call(api, agent["id"], version)
        body = {"ultravadEotThreshold": None, "fallbackSilenceMs": 2000}
        status, answer = await api("POST", f"/calls/{call.id}/replay", body)
        assert (status, answer["data"]["settingsFrom"]) == (200, source)
        order = replayer.orders.pop()
        assert order.before == TurnSettings(turn_endpoint_delay=delay, min_turn_duration=shortest)
        assert order.after == replace(order.before, ultravad_eot_threshold=None, fallback_silence_ms=2000)
        assert order.language == "en"
        assert answer["data"]["settings"]["after"]["fallbackSilenceMs"] == 2000
    call = await recorded_call(api, str(uuid4()), 1)
    _, answer = await api("POST", f"/calls/{call.id}/replay", {})
    assert (answer["data"]["settingsFrom"], replayer.orders[0].before) == ("defaults", TurnSettings())


async def test_the_settings_have_the_bounds_of_agents(api: Api) -> None:
    call = await recorded_call(api, str(uuid4()))
    body = {"turnEndpointDelay": 2001, "ultravadEotThreshold": 1.1, "voiceSpeed": 1}
    status, answer = await api("POST", f"/calls/{call.id}/replay", body)
    assert status == 400
    _, of_agent = await api("POST", "/agents", {"name": "Anna", **body, "voiceSpeed": 9})
    same = [each for each in of_agent["details"] if each["field"] != "voiceSpeed"]
    assert answer["details"] == [*same, {"field": "voiceSpeed", "message": "Unknown field"}]


async def test_calls_that_cannot_be_replayed_say_why(start_api: StartApi) -> None:
    replayer, rejects = FakeReplayer(), list[str]()
    api: Api = await start_api(replay=replayer.replay, call_rejection_reason=lambda: rejects[0] if rejects else None)
    call = await recorded_call(api, str(uuid4()))
    path = f"/calls/{call.id}/replay"
    rejects.append("The server is draining")
    assert (await api("POST", path, {}))[0] == 503
    rejects.clear()
    other = await api.as_another_organization()
    assert await other("POST", path, {}) == (404, {"error": "Call not found"})

    async def change(**columns: Any) -> None:
        statement = sa.update(tables.calls).where(tables.calls.c.id == call.id).values(**columns)
        await api.services.database.write(lambda conn: conn.execute(statement))

    recording = recordings.path_of(api.services.settings.data_dir, call.id, call.created_at)
    await asyncio.to_thread(recording.unlink)
    removed = await api("POST", path, {})
    assert removed == (409, {"error": "The call has no recording: it was not recorded, or the recording was deleted"})
    await change(recorded=False)
    assert await api("POST", path, {}) == removed
    await change(ended_at=None)
    live = await api("POST", path, {})
    assert live == (409, {"error": "The call is live: it can be replayed after its end"})
    assert replayer.orders == []


async def test_a_recording_in_a_store_is_replayed_from_a_copy_which_is_then_removed(
    start_api: StartApi, tmp_path: Path
) -> None:
    seen, replayer, store = list[bytes](), FakeReplayer(), FolderStore(tmp_path / "shared")
    await asyncio.to_thread((tmp_path / "shared").mkdir)
    await store.open()

    async def replay(order: ReplayOrder) -> CallReplay:
        seen.append(await asyncio.to_thread(order.recording.read_bytes))
        return await replayer.replay(order)

    async def is_recorded() -> bool:
        return True

    files = RecordingFiles(tmp_path, store)
    api: Api = await start_api(replay=replay, recordings=files)
    call = await recorded_call(api, str(uuid4()))
    path = f"/calls/{call.id}/replay"
    for _ in ("on the disk", "in the store"):
        assert (await api("POST", path, {}))[0] == 200
        await files.move_to_store(call, is_recorded)
    assert seen == [b"RIFF", b"RIFF"]
    assert not any([await asyncio.to_thread(order.recording.exists) for order in replayer.orders])
    await asyncio.to_thread((tmp_path / "shared").rename, tmp_path / "gone")
    assert (await api("POST", path, {}))[0] == 503
    await asyncio.to_thread((tmp_path / "gone").rename, tmp_path / "shared")
    await files.remove([(call.id, call.created_at)])
    assert (await api("POST", path, {}))[0] == 409
