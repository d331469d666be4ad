"""Export and deletion of all data of a call."""

from __future__ import annotations

import asyncio
import io
import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import pytest
import sqlalchemy as sa
from aiohttp.test_utils import make_mocked_request

from api.http.zip_stream import ZipMember, ZipStreamResponse
from calls.post_call.retention_worker import RetentionWorker
from config.clock import utc_now
from storage import tables
from storage.calls import calls, outbound_audit, sip_traces
from storage.calls.calls import Call
from storage.calls.outbound_audit import DialRequest
from storage.calls.sip_traces import SipTrace
from storage.webhooks import deliveries
from tests.api.conftest import Api
from tests.calls.call_service_harness import until
from tests.calls.post_call.past_calls import SAID, SOUND, past_call, tables_with_data, write_recording

TOLD = {"README.txt", "call.json", "transcript.json", "transcript.txt", "timeline.json", "sip.json"}
EVERYTHING = TOLD | {"recording.wav", "webhook/body.json", "webhook/attempts.json"}


async def family(api: Api, *, child_ended: bool = True) -> tuple[Call, Call]:
    """An ended call with recording and webhook, and the call that it was transferred to."""

    def store(conn: sa.Connection) -> tuple[Call, Call]:
        ended_at = utc_now() - timedelta(hours=1)
        parent = past_call(conn, api.organization_id, ended_at)
        return parent, past_call(conn, api.organization_id, ended_at, parent=parent.id, ended=child_ended)

    created = await api.services.database.write(store)
    for each in created:
        await asyncio.to_thread(write_recording, api.services.settings.data_dir, each)
    return created


def opened(archive: bytes) -> dict[str, bytes]:
    """The files of an archive, whose checksums are verified."""
    with ZipFile(io.BytesIO(archive)) as found:
        assert found.testzip() is None
        return {name: found.read(name) for name in found.namelist()}


async def test_an_export_has_all_data_of_a_call(api: Api) -> None:
    parent, child = await family(api)
    response = await api.raw("GET", f"/calls/{parent.id}/export")
    assert (response.status, response.content_type) == (200, "application/zip")
    assert response.headers["Content-Disposition"] == f'attachment; filename="call-{parent.id}.zip"'
    files = opened(await response.read())
    of_child = {f"transfers/{child.id}/{name}" for name in EVERYTHING - {"README.txt"}}
    assert set(files) == EVERYTHING | of_child
    shown = json.loads(files["call.json"])
    told = (await api("GET", f"/calls/{parent.id}"))[1]["data"]
    assert {**shown, "recordingUrl": ""} == {**told, "recordingUrl": ""}
    assert files["transcript.txt"].decode() == f"user: {SAID}\n"
    assert files["recording.wav"] == SOUND
    assert json.loads(files["webhook/body.json"]) == {"summary": SAID}
    assert json.loads(files["webhook/attempts.json"])[0]["responseBody"] == SAID
    assert json.loads(files["sip.json"])["callId"] == parent.id
    assert parent.id in files["README.txt"].decode()


async def test_a_live_call_is_exported_with_the_data_so_far(api: Api) -> None:
    _, child = await family(api, child_ended=False)
    response = await api.raw("GET", f"/calls/{child.id}/export")
    assert set(opened(await response.read())) == TOLD


async def test_a_head_request_gets_no_archive(api: Api) -> None:
    parent, _ = await family(api)
    response = await api.raw("HEAD", f"/calls/{parent.id}/export")
    assert (response.status, response.content_type, await response.read()) == (200, "application/zip", b"")


async def test_an_export_needs_a_key_of_the_calls_organization(api: Api) -> None:
    parent, _ = await family(api)
    other = await api.as_another_organization()
    for method, path in (("GET", f"/calls/{parent.id}/export"), ("DELETE", f"/calls/{parent.id}")):
        assert await other(method, path) == (404, {"error": "Call not found"})
        assert (await api.client.request(method, f"/v1{path}")).status == 401
    assert await api("GET", f"/calls/{uuid4()}/export") == (404, {"error": "Call not found"})


async def test_a_deleted_call_leaves_nothing(api: Api) -> None:
    parent, child = await family(api)
    data_dir, database = api.services.settings.data_dir, api.services.database
    wish = DialRequest(
        organization_id=api.organization_id, phone_number_id=None, destination="+4940654321", client="::1"
    )
    await database.write(
        partial(outbound_audit.record, request=wish, verdict="queued", call_id=parent.id, detail="+49")
    )
    path = f"/calls/{parent.id}"
    key = {"Idempotency-Key": "once"}
    assert (await api("POST", f"{path}/webhook-deliveries", headers=key))[0] == 201
    assert await api("DELETE", path) == (200, {"data": {"id": parent.id, "deleted": True}})
    assert await api("DELETE", path) == (404, {"error": "Call not found"})
    for below in ("", "/recording", "/transcript", "/timeline", "/waveform", "/sip", "/export", "/webhook-deliveries"):
        assert await api("GET", path + below) == (404, {"error": "Call not found"})
    assert (await api("POST", f"{path}/webhook-deliveries", headers=key))[0] == 404
    await RetentionWorker(database, data_dir).run_once(utc_now())
    assert not await asyncio.to_thread(lambda: list((data_dir / "recordings").rglob("*.wav")))
    for each in (parent, child):
        assert await database.read(partial(tables_with_data, call_id=each.id)) == set()
    attempt = await database.read(partial(outbound_audit.attempt_of_call, call_id=parent.id))
    assert attempt is not None
    assert (attempt.destination, attempt.detail, attempt.client) == ("+4940…", None, "::1")


async def test_a_call_that_has_not_ended_is_not_deleted(api: Api) -> None:
    parent, child = await family(api, child_ended=False)
    for each in (child, parent):
        assert await api("DELETE", f"/calls/{each.id}") == (409, {"error": "The call has not ended"})
    assert await api.services.database.read(partial(calls.get_by_id, call_id=parent.id)) == parent


async def test_late_data_of_a_deleted_call_is_dropped(api: Api) -> None:
    """SIP messages are stored a moment after the end of a call; a webhook attempt may be under way."""
    database = api.services.database

    def store(conn: sa.Connection) -> tuple[Call, Call]:
        at = utc_now() - timedelta(hours=1)
        return past_call(conn, api.organization_id, at), past_call(conn, api.organization_id, at, delivered=False)

    stays, goes = await database.write(store)
    (due,) = await database.read(lambda conn: deliveries.due_attempts(conn, utc_now()))
    assert (await api("DELETE", f"/calls/{goes.id}"))[0] == 200

    def late(conn: sa.Connection) -> Any:
        sip_traces.store(conn, {goes.id: SipTrace([]), stays.id: SipTrace([], 7)})
        return deliveries.record_attempt(
            conn,
            due.attempt,
            succeeded=True,
            response_status=200,
            response_body=None,
            error=None,
            duration_ms=1,
            started_at=utc_now(),
        )

    assert await database.write(late) is None
    assert await database.read(partial(sip_traces.get, call_id=stays.id)) == SipTrace([], 7)
    assert await database.read(partial(tables_with_data, call_id=goes.id)) <= {"recording_removals"}


class Endless(io.BytesIO):
    """A file larger than any memory, which counts the bytes that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_by_now = 0

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        self.read_by_now += size
        return bytes(size)


def test_an_archive_is_made_while_it_is_sent_and_its_files_are_closed() -> None:
    endless = Endless()
    stream = ZipStreamResponse(
        "x.zip", [ZipMember.from_bytes("a.txt", b"a"), ZipMember("b", endless, 10**13)], utc_now()
    )
    first = [next(stream._chunks) for _ in range(3)]
    assert b"a.txt" in first[0]
    assert endless.read_by_now < 10_000_000
    stream._close()
    assert endless.closed


class Stuck(io.RawIOBase):
    """A file whose read blocks until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.released = Event(), Event()

    def read(self, size: int = -1) -> bytes:
        self.asked.set()
        self.released.wait(10)
        return b""


async def test_an_archive_that_is_cut_off_while_a_file_is_read_is_closed() -> None:
    stuck = Stuck()
    stream = ZipStreamResponse("x.zip", [ZipMember("a", stuck, 1)], utc_now())  # type: ignore[arg-type]
    await stream.prepare(make_mocked_request("GET", "/"))
    sending = asyncio.create_task(stream.write_eof())
    assert await asyncio.to_thread(stuck.asked.wait, 10)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert not stuck.closed
    stuck.released.set()
    await until(lambda: stuck.closed)


async def test_the_files_of_an_archive_that_is_not_sent_are_closed() -> None:
    stuck = Stuck()
    stream = ZipStreamResponse("x.zip", [ZipMember("a", stuck, 1)], utc_now())  # type: ignore[arg-type]
    await stream.prepare(make_mocked_request("HEAD", "/"))
    await stream.write_eof()
    assert stuck.closed
    assert not stuck.asked.is_set()


async def test_recordings_that_are_deleted_meanwhile_are_sent(api: Api, tmp_path: Path) -> None:
    parent, _ = await family(api)
    async with api.client.get(
        f"/v1/calls/{parent.id}/export", headers={"Authorization": f"Bearer {api.key}"}
    ) as response:
        assert (await api("DELETE", f"/calls/{parent.id}"))[0] == 200
        await RetentionWorker(api.services.database, tmp_path).run_once(utc_now())
        assert opened(await response.read())["recording.wav"] == SOUND


async def test_the_text_of_an_export_names_the_speakers_of_connected_parties(api: Api) -> None:
    parent, _ = await family(api)
    talk = [
        {"role": "assistant", "content": "One moment."},
        {"role": "user", "content": "Sales.", "speaker": "target"},
        {"role": "user", "content": "Hello.", "speaker": "caller"},
    ]
    change = sa.update(tables.calls).where(tables.calls.c.id == parent.id).values(transcript=talk)
    await api.services.database.write(lambda conn: conn.execute(change).rowcount)
    response = await api.raw("GET", f"/calls/{parent.id}/export")
    text = opened(await response.read())["transcript.txt"].decode()
    assert text == "assistant: One moment.\ntarget: Sales.\ncaller: Hello.\n"
