"""`/v1/calls/{id}/webhook-deliveries`: list the attempts, send again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from config.clock import iso, utc_now
from storage.calls import calls
from storage.calls.calls import Call
from storage.webhooks import deliveries
from storage.webhooks.deliveries import DeliveryAttempt
from tests.api.conftest import Api, StartApi

FIELDS = {
    "event",
    "endpointId",
    "deliveryId",
    *("id", "attempt", "status", "responseStatus", "responseBody", "error", "durationMs", "manual", "createdAt"),
    "nextAttemptAt",
}
WAITING = {"responseStatus": None, "responseBody": None, "error": None, "durationMs": None, "status": "pending"}
URL = "https://name:hush-password@receiver.example/hook?key=hush-key"


async def _call(api: Api, *, ended: bool = True, url: str | None = URL) -> Call:
    """Stores a call and the event of its end."""

    def make(conn: sa.Connection) -> Call:
        call = calls.create_inbound(
            conn,
            organization_id=api.organization_id,
            agent_id=str(uuid4()),
            phone_number_id=str(uuid4()),
            provider="sip",
            call_sid="abc@pbx",
            customer_number="100",
        )
        if ended:
            calls.finish(conn, call.id, status="failed", ended_reason="error", ended_at=call.created_at)
        if ended and url is not None:
            deliveries.add(
                conn,
                organization_id=api.organization_id,
                call_id=call.id,
                url=url,
                body=b'{"hush":"body"}',
                secret_encrypted="hush-token",
            )
        return call

    return await api.services.database.write(make)


async def _made(
    api: Api, *, status: int | None, error: str | None = None, again: timedelta | None = None
) -> DeliveryAttempt:
    """Records the next due attempt as made."""

    def record(conn: sa.Connection) -> DeliveryAttempt:
        now = utc_now()
        [due, *_] = deliveries.due_attempts(conn, now + timedelta(hours=2))
        recorded = deliveries.record_attempt(
            conn,
            due.attempt,
            succeeded=status == 200,
            response_status=status,
            response_body=None if status is None else "thanks",
            error=error,
            duration_ms=12,
            started_at=now,
            next_attempt_at=None if again is None else now + again,
        )
        assert recorded is not None
        return recorded

    return await api.services.database.write(record)


async def _listed(api: Api, call: Call, query: str = "") -> tuple[list[dict[str, Any]], dict[str, int]]:
    status, answer = await api("GET", f"/calls/{call.id}/webhook-deliveries{query}")
    assert (status, set(answer)) == (200, {"data", "pagination"})
    return answer["data"], answer["pagination"]


async def test_an_attempt_is_listed_as_soon_as_the_call_ends(api: Api) -> None:
    call = await _call(api)
    (attempt,), pagination = await _listed(api, call)
    assert set(attempt) == FIELDS
    assert WAITING.items() <= attempt.items()
    assert (attempt["attempt"], attempt["manual"]) == (1, False)
    assert attempt["createdAt"] == attempt["nextAttemptAt"]
    assert pagination == {"total": 1, "limit": 50, "offset": 0}


async def test_a_failed_attempt_has_its_error_and_the_time_of_the_next(api: Api) -> None:
    call = await _call(api)
    failed = await _made(api, status=None, error="no complete answer within 10 s", again=timedelta(minutes=1))
    (waiting, told), _ = await _listed(api, call)
    assert failed.next_attempt_at is not None
    assert told == {
        "id": failed.id,
        "event": "call.completed",
        "endpointId": None,
        "deliveryId": failed.delivery_id,
        "attempt": 1,
        "status": "failed",
        "responseStatus": None,
        "responseBody": None,
        "error": "no complete answer within 10 s",
        "durationMs": 12,
        "manual": False,
        "createdAt": iso(failed.created_at),
        "nextAttemptAt": iso(failed.next_attempt_at),
    }
    assert WAITING.items() <= waiting.items()
    assert (waiting["attempt"], waiting["nextAttemptAt"]) == (2, iso(failed.next_attempt_at))


async def test_a_successful_attempt_is_the_last_one(api: Api) -> None:
    call = await _call(api)
    await _made(api, status=200)
    (told,), _ = await _listed(api, call)
    assert (told["status"], told["responseStatus"], told["responseBody"]) == ("succeeded", 200, "thanks")
    assert (told["error"], told["nextAttemptAt"]) == (None, None)


async def test_attempts_come_in_pages_newest_first(api: Api) -> None:
    call = await _call(api)
    for _ in range(4):
        await _made(api, status=500, again=timedelta(minutes=1))
    whole, pagination = await _listed(api, call)
    assert [each["attempt"] for each in whole] == [5, 4, 3, 2, 1]
    assert pagination["total"] == 5
    part, pagination = await _listed(api, call, "?limit=2&offset=3")
    assert (part, pagination) == (whole[3:], {"total": 5, "limit": 2, "offset": 3})
    for query in ("limit=0", "limit=101", "offset=-1", "limit=x"):
        status, answer = await api("GET", f"/calls/{call.id}/webhook-deliveries?{query}")
        assert (status, answer["details"][0]["field"]) == (400, query.partition("=")[0])


async def test_attempts_are_listed_by_call(api: Api) -> None:
    first, second = await _call(api), await _call(api)
    assert len({(await _listed(api, each))[0][0]["id"] for each in (first, second)}) == 2


async def test_sending_again_returns_the_pending_attempt_and_wakes_the_webhook_sender(api: Api) -> None:
    call = await _call(api)
    await _made(api, status=200)
    status, answer = await api("POST", f"/calls/{call.id}/webhook-deliveries")
    attempt = answer["data"]
    assert (status, set(answer), set(attempt)) == (201, {"data"}, FIELDS)
    assert WAITING.items() <= attempt.items()
    assert (attempt["attempt"], attempt["manual"]) == (2, True)
    assert attempt["nextAttemptAt"] == attempt["createdAt"]
    assert api.webhook_wakes == [None]
    listed, _ = await _listed(api, call)
    assert listed[0] == attempt
    due = await api.services.database.read(lambda conn: deliveries.due_attempts(conn, utc_now()))
    assert [each.attempt.id for each in due] == [attempt["id"]]


async def test_manual_attempts_are_numbered_after_the_schedule(start_api: StartApi) -> None:
    api = await start_api({"webhooks": {"retry_delays_s": [1.0, 2.0]}})
    call = await _call(api)
    numbers = [(await api("POST", f"/calls/{call.id}/webhook-deliveries"))[1]["data"]["attempt"] for _ in range(2)]
    assert numbers == [4, 5]


async def test_the_same_idempotency_key_sends_once(api: Api) -> None:
    call = await _call(api)
    path, key = f"/calls/{call.id}/webhook-deliveries", {"Idempotency-Key": "again"}
    first, second = [await api("POST", path, headers=key) for _ in range(2)]
    assert first == second
    assert len(api.webhook_wakes) == 1
    assert (await _listed(api, call))[1]["total"] == 2


async def test_sending_again_before_the_end_of_the_call_is_409(api: Api) -> None:
    call = await _call(api, ended=False)
    assert await _listed(api, call) == ([], {"total": 0, "limit": 50, "offset": 0})
    status, answer = await api("POST", f"/calls/{call.id}/webhook-deliveries")
    assert (status, answer) == (409, {"error": "The call has not ended"})
    assert api.webhook_wakes == []


async def test_sending_again_without_an_event_is_409(api: Api) -> None:
    call = await _call(api, url=None)
    assert (await _listed(api, call))[0] == []
    status, answer = await api("POST", f"/calls/{call.id}/webhook-deliveries")
    assert status == 409
    reason = "its agent had no postCallWebhookUrl when it ended, or it is not kept any more"
    assert answer == {"error": f"The call has no event to send: {reason}"}
    assert (await _listed(api, call))[0] == []


async def test_another_organization_can_neither_list_nor_send(api: Api) -> None:
    call = await _call(api)
    other = await api.as_another_organization()
    for client, item in ((other, call.id), (api, str(uuid4())), (api, "x")):
        for method in ("GET", "POST"):
            answer = await client(method, f"/calls/{item}/webhook-deliveries")
            assert answer == (404, {"error": "Call not found"})
    assert (await _listed(api, call))[1]["total"] == 1


async def test_an_attempt_has_neither_url_nor_secret_nor_body(api: Api) -> None:
    call = await _call(api)
    await _made(api, status=500, again=timedelta(minutes=1))
    for method in ("POST", "GET"):
        response = await api.raw(method, f"/calls/{call.id}/webhook-deliveries")
        text = await response.text()
        assert response.status < 300
        assert "hush" not in text
        assert "receiver.example" not in text


async def test_an_event_is_sent_again_by_its_id(api: Api) -> None:
    call, other = await _call(api, url=None), await _call(api)

    def add(conn: sa.Connection) -> deliveries.Delivery:
        return deliveries.add(
            conn,
            organization_id=api.organization_id,
            call_id=call.id,
            url=URL,
            body=b"{}",
            secret_encrypted=None,
            event="call.answered",
        )

    event = await api.services.database.write(add)
    path = f"/calls/{call.id}/webhook-deliveries"
    status, answer = await api("POST", path, {"deliveryId": event.id})
    assert (status, answer["data"]["event"], answer["data"]["deliveryId"]) == (201, "call.answered", event.id)
    assert (await api("POST", path, {}))[0] == 409
    (of_other,), _ = await _listed(api, other)
    for wrong in (of_other["deliveryId"], str(uuid4()), "x"):
        status, answer = await api("POST", path, {"deliveryId": wrong})
        assert (status, answer["details"][0]["field"]) == (400, "deliveryId")
    assert len((await _listed(api, call))[0]) == 2
