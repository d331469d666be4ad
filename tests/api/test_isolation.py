"""Another organization's resources cannot be told from unknown ones."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from storage import calls
from tests.api.conftest import Api

PLACES = [
    ("Agent", "/agents/{}", ("GET", "PATCH", "DELETE")),
    ("Phone number", "/phone-numbers/{}", ("GET", "PATCH", "DELETE")),
    ("Call", "/calls/{}", ("GET",)),
    ("Call", "/calls/{}/recording", ("GET",)),
    ("Call", "/calls/{}/transcript", ("GET",)),
    ("Call", "/calls/{}/timeline", ("GET",)),
    ("Call", "/calls/{}/webhook-deliveries", ("GET", "POST")),
]


async def _own(api: Api) -> dict[str, str]:
    agent = await api.made("/agents", {"name": "Anna"})
    phone = await api.made("/phone-numbers", {"number": "100", "provider": "sip"})
    call = await api.services.database.write(
        lambda conn: calls.create_inbound(
            conn,
            organization_id=api.organization_id,
            agent_id=agent["id"],
            phone_number_id=phone["id"],
            provider="sip",
            call_sid="x",
            customer_number="200",
        )
    )
    return {"Agent": agent["id"], "Phone number": phone["id"], "Call": call.id}


@pytest.mark.parametrize(("noun", "path", "methods"), PLACES)
async def test_a_foreign_id_is_an_unknown_id(api: Api, noun: str, path: str, methods: tuple[str, ...]) -> None:
    own = await _own(api)
    other = await api.of_another_organization()
    for method in methods:
        body: Any = {"name": "Mine now"} if method == "PATCH" else None
        answers = [
            await client(method, path.format(item), body)
            for client, item in ((other, own[noun]), (api, str(uuid4())), (api, "x"), (api, f"{{{own[noun]}}}"))
        ]
        assert answers == [(404, {"error": f"{noun} not found"})] * 4
    for name, item in own.items():
        start = {"Agent": "/agents", "Phone number": "/phone-numbers", "Call": "/calls"}[name]
        status, answer = await api("GET", f"{start}/{item}")
        assert (status, answer["data"].get("name")) != (200, "Mine now")


@pytest.mark.parametrize("path", ["/agents", "/phone-numbers", "/calls"])
async def test_a_list_holds_only_the_organizations_own(api: Api, path: str) -> None:
    await _own(api)
    other = await api.of_another_organization()
    _, answer = await other("GET", path)
    assert answer == {"data": [], "pagination": {"total": 0, "limit": 50, "offset": 0}}
    _, answer = await api("GET", path)
    assert answer["pagination"]["total"] == 1


async def test_an_id_is_found_in_any_letter_case(api: Api) -> None:
    own = await _own(api)
    status, answer = await api("GET", f"/agents/{own['Agent'].upper()}")
    assert (status, answer["data"]["id"]) == (200, own["Agent"])
