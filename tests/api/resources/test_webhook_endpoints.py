"""`/v1/webhook-endpoints`: what the tables of the contract do not say."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from api.resources import webhook_endpoints
from storage import tables
from storage.accounts import organizations
from storage.calls import calls
from storage.webhooks import deliveries, endpoints
from tests.api.conftest import Api, StartApi

ENDPOINT: dict[str, Any] = {"url": "https://crm.example/calls", "secret": "whsec_c2VjcmV0", "events": ["call.started"]}


async def test_the_secret_is_write_only_and_encrypted(api: Api) -> None:
    created = await api.create("/webhook-endpoints", ENDPOINT)
    assert created["secretSet"] is True
    assert "secret" not in created
    stored = await api.services.database.read(lambda conn: endpoints.get(conn, api.organization_id, created["id"]))
    assert stored is not None
    token = stored.secret_encrypted
    assert token is not None
    assert "whsec" not in token
    assert token not in repr(stored)
    assert api.services.secrets.decrypt(token) == "whsec_c2VjcmV0"
    path = f"/webhook-endpoints/{created['id']}"
    for body, is_set in (({"enabled": False}, True), ({"secret": None}, False), ({"secret": "other"}, True)):
        _, answer = await api("PATCH", path, body)
        assert answer["data"]["secretSet"] is is_set


async def test_an_organization_may_have_so_many_endpoints(start_api: StartApi) -> None:
    api = await start_api({"webhooks": {"max_endpoints": 2}})
    created = [await api.create("/webhook-endpoints", ENDPOINT) for _ in range(2)]
    status, answer = await api("POST", "/webhook-endpoints", ENDPOINT)
    assert status == 403
    assert answer["quota"] == {"name": "webhook_endpoints", "used": 2, "allowed": 2}
    assert (await api("DELETE", f"/webhook-endpoints/{created[0]['id']}"))[0] == 200
    await api.create("/webhook-endpoints", ENDPOINT)


async def test_the_default_limit_is_20(api: Api) -> None:
    assert api.services.settings.webhooks.max_endpoints == 20


async def test_a_setting_allows_http_endpoints(start_api: StartApi) -> None:
    api = await start_api({"webhooks": {"allow_http": True}})
    for url, expected in (("http://receiver.example:8080/hook", 201), ("ftp://x/", 400)):
        assert (await api("POST", "/webhook-endpoints", {"url": url}))[0] == expected


@pytest.mark.parametrize(
    ("events", "field"),
    [(["call.turn", "call.turn"], "events.1"), (["call.ended"], "events.0"), (None, "events")],
)
async def test_unknown_and_repeated_events_are_rejected(api: Api, events: object, field: str) -> None:
    created = await api.create("/webhook-endpoints", ENDPOINT)
    for method, path in (("POST", "/webhook-endpoints"), ("PATCH", f"/webhook-endpoints/{created['id']}")):
        status, answer = await api(method, path, {**ENDPOINT, "events": events})
        assert (status, answer["details"][0]["field"]) == (400, field)


async def _with_delivery(api: Api, *, calls_with_it: int = 1) -> dict[str, Any]:
    """An endpoint with a pending delivery of each call; each call has one for its agent, too."""
    created = await api.create("/webhook-endpoints", ENDPOINT)

    def add(conn: sa.Connection) -> None:
        for number in range(calls_with_it):
            add_call(conn, f"x{number}")

    def add_call(conn: sa.Connection, call_sid: str) -> None:
        call = calls.create_inbound(
            conn,
            organization_id=api.organization_id,
            agent_id=api.organization_id,
            phone_number_id=api.organization_id,
            provider="sip",
            call_sid=call_sid,
            customer_number="100",
        )
        for endpoint_id in (None, created["id"]):
            deliveries.add(
                conn,
                organization_id=api.organization_id,
                call_id=call.id,
                url="https://crm.example/calls",
                body=b"{}",
                secret_encrypted=None,
                endpoint_id=endpoint_id,
            )

    await api.services.database.write(add)
    return created


def _receivers(conn: sa.Connection) -> list[str | None]:
    events, attempts = tables.webhook_deliveries.c, tables.webhook_attempts.c
    joined = sa.select(events.endpoint_id).join(tables.webhook_attempts, attempts.delivery_id == events.id)
    return list(conn.execute(joined.select_from(tables.webhook_deliveries)).scalars())


async def test_deleting_an_endpoint_deletes_its_deliveries_alone(api: Api) -> None:
    created = await _with_delivery(api)
    assert set(await api.services.database.read(_receivers)) == {None, created["id"]}
    assert (await api("DELETE", f"/webhook-endpoints/{created['id']}"))[0] == 200
    assert await api.services.database.read(_receivers) == [None]


async def test_the_deliveries_of_an_endpoint_are_deleted_in_small_transactions(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_endpoints, "DELIVERIES_PER_TRANSACTION", 2)
    created = await _with_delivery(api, calls_with_it=5)
    deleted: list[int] = []

    def count(conn: sa.Connection, **batch: Any) -> int:
        deleted.append(delete(conn, **batch))
        return deleted[-1]

    delete = endpoints.delete_deliveries
    monkeypatch.setattr(endpoints, "delete_deliveries", count)
    assert (await api("DELETE", f"/webhook-endpoints/{created['id']}"))[0] == 200
    assert deleted == [2, 2, 1]
    assert await api.services.database.read(_receivers) == [None] * 5


async def test_deleting_an_organization_deletes_its_endpoints_and_their_deliveries(api: Api) -> None:
    await _with_delivery(api)
    owner = tables.organizations.c.id == api.organization_id
    await api.services.database.write(lambda conn: conn.execute(sa.delete(tables.organizations).where(owner)))
    assert await api.services.database.read(_receivers) == []
    assert await api.services.database.read(lambda conn: organizations.get(conn, api.organization_id)) is None
    assert await api.services.database.read(lambda conn: endpoints.count(conn, api.organization_id)) == 0
