"""POST /calls/{id}/transfer, and the transfers of a call in GET /calls/{id}."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from config.clock import iso, utc_now
from config.errors import Conflict, FieldProblem, Invalid, LimitExceeded, TrunklineError
from storage.calls import calls, recordings, transfers
from storage.calls.calls import Call
from storage.calls.transfers import TransferAttempt, TransferOrder
from tests.api.conftest import Api, StartApi
from tests.fakes.transfers import FakeTransfers
from tests.storage.calls.transfer_makers import SECOND, parent_call, transfer_of


@pytest.fixture
def fake() -> FakeTransfers:
    return FakeTransfers()


@pytest.fixture
async def api(start_api: StartApi, fake: FakeTransfers) -> Api:
    started: Api = await start_api(transfer=fake.transfer)
    fake.database = started.services.database
    return started


async def in_progress(api: Api) -> Call:
    """A call of the organization."""
    return await api.services.database.write(lambda conn: parent_call(conn, api.organization_id))


async def test_a_transfer_is_begun_and_returned(api: Api, fake: FakeTransfers) -> None:
    call = await in_progress(api)
    order = {"target": "Sales", "mode": "warm_announce", "reason": "wants to buy", "summary": "Asked for prices"}
    status, answer = await api("POST", f"/calls/{call.id}/transfer", order)
    (begun,) = await api.services.database.read(lambda conn: transfers.of_call(conn, call.id))
    assert fake.orders == [(call.id, TransferOrder(**order, requested_by="api"))]  # type: ignore[arg-type]
    assert (status, answer) == (
        201,
        {
            "data": {
                "id": begun.id,
                "transferType": "warm_announce",
                "transferStatus": "initiated",
                "durationSeconds": None,
                "customerNumber": "+4930123456",
                "recordingUrl": None,
                "transcript": [],
                "startedAt": None,
                "endedAt": None,
                "status": "queued",
                "targetName": "Sales",
                "reason": "wants to buy",
                "summary": "Asked for prices",
                "requestedBy": "api",
                "createdAt": iso(begun.created_at),
                "answeredAt": None,
                "connectedAt": None,
                "sipStatus": None,
                "declineReason": None,
                "attempts": [],
                "states": [],
            }
        },
    )


async def test_only_the_target_of_a_transfer_is_required(api: Api, fake: FakeTransfers) -> None:
    call = await in_progress(api)
    body = {"target": "Sales", "mode": None, "reason": None, "summary": None}
    assert (await api("POST", f"/calls/{call.id}/transfer", {"target": "Sales"}))[0] == 201
    assert (await api("POST", f"/calls/{call.id}/transfer", body))[0] == 409
    assert fake.orders == [(call.id, TransferOrder(target="Sales", requested_by="api"))] * 2
    status, answer = await api("POST", f"/calls/{call.id}/transfer", {})
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["target"])


@pytest.mark.parametrize(
    ("error", "status", "fields"),
    [
        (Invalid([FieldProblem("target", "Is no transfer target of the agent")]), 400, ["target"]),
        (Conflict("A transfer of the call is under way"), 409, None),
        (LimitExceeded("Too many concurrent calls. Please try again later."), 429, None),
    ],
)
async def test_a_refused_transfer_has_the_status_of_its_error(
    api: Api, fake: FakeTransfers, error: TrunklineError, status: int, fields: list[str] | None
) -> None:
    call = await in_progress(api)
    fake.error = error
    got, answer = await api("POST", f"/calls/{call.id}/transfer", {"target": "Sales"})
    details = answer.get("details")
    assert (got, details and [each["field"] for each in details]) == (status, fields)
    assert answer["error"] == error.message


async def test_the_call_of_another_organization_is_not_transferred(api: Api, fake: FakeTransfers) -> None:
    call = await in_progress(api)
    other = await api.as_another_organization()
    for client, call_id in ((other, call.id), (api, str(uuid4()))):
        assert await client("POST", f"/calls/{call_id}/transfer", {"target": "Sales"}) == (
            404,
            {"error": "Call not found"},
        )
    assert fake.orders == []


async def test_a_repeated_request_begins_no_second_transfer(api: Api, fake: FakeTransfers) -> None:
    call = await in_progress(api)
    key = {"Idempotency-Key": "transfer-1"}
    answers = [await api("POST", f"/calls/{call.id}/transfer", {"target": "Sales"}, headers=key) for _ in range(2)]
    assert answers[0][0] == 201
    assert answers[0] == answers[1]
    assert len(fake.orders) == 1


async def test_a_call_shows_its_transfers_with_their_child_calls_newest_last(api: Api) -> None:
    call = await in_progress(api)
    at = call.created_at
    referred = transfer_of(call, mode="cold", reason=None, summary=None)
    briefed = transfer_of(call, created_at=at + 2 * SECOND)
    attempt: transfers.TransferAttempt = {
        "number": briefed.number,
        "startedAt": iso(at),
        "endedAt": iso(at + 4 * SECOND),
        "sipStatus": 200,
        "outcome": "declined",
    }
    talk: list[calls.TranscriptItem] = [{"role": "user", "content": "Not now", "startMs": 700, "endMs": 1100}]

    def store(conn: sa.Connection) -> None:
        transfers.insert(conn, referred)
        transfers.update(conn, referred.id, status="busy", sip_status=486, ended_at=at + SECOND)
        transfers.insert(conn, briefed)
        number = {"phone_number_id": str(uuid4()), "provider": "sip", "customer_number": briefed.number}
        calls.create_child(conn, call_id=briefed.id, parent=call, **number)
        calls.mark_answered(conn, briefed.id, at + 3 * SECOND)
        ended: dict[str, Any] = {"ended_reason": "customer_ended", "ended_at": at + 9 * SECOND, "transcript": talk}
        calls.finish(conn, briefed.id, status="completed", recording=True, cost=0.25, **ended)
        transfers.update(
            conn,
            briefed.id,
            status="declined",
            decline_reason="Not now",
            attempts=[attempt],
            answered_at=at + 3 * SECOND,
            ended_at=at + 9 * SECOND,
        )

    await api.services.database.write(store)
    data = (await api("GET", f"/calls/{call.id}"))[1]["data"]
    assert (data["transferType"], data["transferStatus"], data["parentCallId"]) == ("warm_briefing", "declined", None)
    first, second = data["transferCalls"]
    assert (first["id"], first["transferStatus"], first["sipStatus"]) == (referred.id, "busy", 486)
    assert (first["status"], first["durationSeconds"], first["transcript"]) == ("failed", 0, [])
    assert (first["startedAt"], first["endedAt"], first["requestedBy"]) == (None, iso(at + SECOND), "agent")
    assert "cost" not in first
    link = second.pop("recordingUrl")
    assert second == {
        "id": briefed.id,
        "transferType": "warm_briefing",
        "transferStatus": "declined",
        "durationSeconds": 6,
        "customerNumber": "+4930123456",
        "transcript": talk,
        "startedAt": iso(at + 3 * SECOND),
        "endedAt": iso(at + 9 * SECOND),
        "cost": 0.25,
        "status": "completed",
        "targetName": "Sales",
        "reason": "wants to buy",
        "summary": "Asked for prices",
        "requestedBy": "agent",
        "createdAt": iso(briefed.created_at),
        "answeredAt": iso(at + 3 * SECOND),
        "connectedAt": None,
        "sipStatus": None,
        "declineReason": "Not now",
        "attempts": [attempt],
        "states": [{"status": "declined", "at": iso(at + 9 * SECOND)}],
    }
    await _check_recording(api, briefed.id, link)
    child = (await api("GET", f"/calls/{briefed.id}"))[1]["data"]
    assert (child["parentCallId"], child["direction"], child["transferCalls"]) == (call.id, "outbound", [])
    assert (child["transferType"], child["transferStatus"]) == ("warm_briefing", "declined")


async def _check_recording(api: Api, call_id: str, link: str) -> None:
    """The link opens the recording of this call without a key."""
    stored = await api.services.database.read(lambda conn: calls.get_by_id(conn, call_id))
    assert stored is not None
    path = recordings.path_of(api.services.settings.data_dir, call_id, stored.created_at)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"sound")
    async with api.client.session.get(link) as response:
        assert (response.status, await response.read()) == (200, b"sound")


@pytest.mark.parametrize(
    ("status", "call_status"),
    [
        ("initiated", "queued"),
        ("ringing", "ringing"),
        ("connected", "in_progress"),
        ("completed", "completed"),
        ("declined", "failed"),
        ("no_answer", "no_answer"),
        ("cancelled", "no_answer"),
        ("failed", "failed"),
    ],
)
async def test_a_transfer_without_a_child_call_has_the_status_that_the_child_would_have(
    api: Api, status: transfers.TransferStatus, call_status: str
) -> None:
    call = await in_progress(api)
    answered = transfer_of(call, answered_at=call.created_at)

    def store(conn: sa.Connection) -> None:
        transfers.insert(conn, answered)
        transfers.update(conn, answered.id, status=status)

    await api.services.database.write(store)
    (shown,) = (await api("GET", f"/calls/{call.id}"))[1]["data"]["transferCalls"]
    assert (shown["transferStatus"], shown["status"], shown["startedAt"]) == (
        status,
        call_status,
        iso(call.created_at),
    )
    assert (shown["durationSeconds"] is None) == (status in transfers.OPEN_STATUSES)


async def test_the_duration_of_a_transfer_without_a_child_call_counts_from_its_answer(api: Api) -> None:
    call = await in_progress(api)
    transfer = transfer_of(call, answered_at=call.created_at)

    def store(conn: sa.Connection) -> None:
        transfers.insert(conn, transfer)
        transfers.update(conn, transfer.id, status="completed", ended_at=call.created_at + timedelta(seconds=42))

    await api.services.database.write(store)
    (shown,) = (await api("GET", f"/calls/{call.id}"))[1]["data"]["transferCalls"]
    assert shown["durationSeconds"] == 42


async def test_lists_have_the_status_of_transfers_but_not_the_transfers(api: Api) -> None:
    call = await in_progress(api)
    await api.services.database.write(lambda conn: transfers.insert(conn, transfer_of(call)))
    (item,) = (await api("GET", "/calls"))[1]["data"]
    assert (item["transferType"], item["transferStatus"], item["transferCalls"]) == ("warm_briefing", "initiated", [])


async def test_the_response_to_a_hang_up_has_the_transfers(start_api: StartApi) -> None:
    async def hangup(call_id: str) -> bool:
        def end(conn: sa.Connection) -> Call | None:
            (open_one,) = transfers.of_call(conn, call_id)
            transfers.update(conn, open_one.id, status="cancelled")
            return calls.finish(conn, call_id, status="completed", ended_reason="api_hangup", ended_at=utc_now())

        return await served.services.database.write(end) is not None

    served: Api = await start_api(hangup=hangup)
    call = await in_progress(served)
    await served.services.database.write(lambda conn: transfers.insert(conn, transfer_of(call, status="ringing")))
    status, answer = await served("POST", f"/calls/{call.id}/hangup")
    assert (status, [each["transferStatus"] for each in answer["data"]["transferCalls"]]) == (200, ["cancelled"])


async def test_the_timeline_has_the_states_and_attempts_of_transfers_in_ms_since_the_answer(api: Api) -> None:
    call = await in_progress(api)
    attempt: TransferAttempt = {
        "number": "+4930123456",
        "startedAt": iso(call.created_at + 2 * SECOND),
        "endedAt": iso(call.created_at + 5 * SECOND),
        "sipStatus": 486,
        "outcome": "busy",
    }
    going_on: TransferAttempt = {**attempt, "endedAt": None, "sipStatus": None, "outcome": None}
    transfer = transfer_of(call, attempts=[attempt, going_on])

    def store(conn: sa.Connection) -> None:
        transfers.insert(conn, transfer)
        transfers.update(conn, transfer.id, status="busy", ended_at=call.created_at + 5 * SECOND)

    await api.services.database.write(store)
    (shown,) = (await api("GET", f"/calls/{call.id}/timeline"))[1]["data"]["transfers"]
    times = {"number": "+4930123456", "startMs": 2000, "endMs": 5000, "sipStatus": 486, "outcome": "busy"}
    assert shown == {
        "id": transfer.id,
        "targetName": "Sales",
        "transferType": "warm_briefing",
        "states": [{"status": "busy", "atMs": 5000}],
        "attempts": [times, {**times, "endMs": None, "sipStatus": None, "outcome": None}],
    }
