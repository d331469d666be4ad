"""The server accepts each example body of the OpenAPI document."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from api.routes import ROUTES
from api.routing.route import Route
from api.schemas.base import NoBody
from storage.calls import calls
from tests.api.conftest import Api, StartApi
from tests.api.resources.test_call_replay import recorded_call
from tests.fakes.fake_replayer import FakeReplayer
from tests.fakes.transfers import FakeTransfers
from tests.storage.calls.transfer_makers import parent_call

WITH_BODY = [
    route
    for route in ROUTES
    if route.body is not None and not issubclass(route.body, NoBody) and route.role != "operator"
]
"""Of a key."""
TRUNK = {"sipMode": "ip_allowlist", "sipIp": "10.0.0.1"}
MAKERS = {
    "Agent": ("/agents", {"name": "a", "knowledgeSearchInstructions": "Always."}),
    "Phone number": (
        "/phone-numbers",
        {"number": "10", "provider": "sip", "sipMode": "ip_allowlist", "sipIp": "10.0.0.1"},
    ),
    "Webhook endpoint": ("/webhook-endpoints", {"url": "https://crm.example/calls"}),
    "Tool": ("/tools", {"name": "t", "type": "http", "config": {"url": "https://tool.example", "method": "GET"}}),
    "User": ("/users", {"name": "ben", "role": "editor"}),
}


@pytest.fixture
async def api(start_api: StartApi) -> Api:
    transfers = FakeTransfers()
    started: Api = await start_api(
        transfer=transfers.transfer,
        whisper=lambda *_: None,
        offer_takeover=lambda *_: "ticket",
        replay=FakeReplayer().replay,
    )
    transfers.database = started.services.database
    return started


async def _chat(api: Api) -> str:
    agent_id = (await api.create(*MAKERS["Agent"]))["id"]
    facts: Any = {"agent_id": agent_id, "agent_version": 1, "context_variables": {}, "metadata": {}}
    chat = await api.services.database.write(
        lambda conn: calls.create_chat(conn, organization_id=api.organization_id, **facts)
    )
    return chat.id


async def _call_in_progress(api: Api) -> str:
    return (await api.services.database.write(lambda conn: parent_call(conn, api.organization_id))).id


NOUNS = {"agentId": "Agent", "phoneNumberId": "Phone number"}


def _name(route: Route) -> str:
    return route.name


@pytest.mark.parametrize("route", WITH_BODY, ids=_name)
async def test_an_example_is_accepted(api: Api, route: Route) -> None:
    assert route.example is not None
    body: dict[str, Any] = dict(route.example)
    for field, noun in NOUNS.items():
        if body.get(field) is not None:
            UUID(body[field])
            body[field] = (await api.create(*MAKERS[noun]))["id"]
    path = route.path
    if route.name == "replayCall":
        path = path.format(id=(await recorded_call(api)).id)
    elif route.item == "Call":
        path = path.format(id=await (_chat if route.name == "sendChatMessage" else _call_in_progress)(api))
    elif route.item is not None:
        path = path.format(id=(await api.create(*MAKERS[route.item]))["id"])
    status, answer = await api(route.method, path, body)
    assert status == route.status, answer
