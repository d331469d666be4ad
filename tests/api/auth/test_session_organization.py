"""A session's cookie opens no other organization, however the request names it."""

from __future__ import annotations

import pytest

from tests.api.auth.test_user_sessions import signed_in
from tests.api.conftest import Api, StartApi
from tests.storage.calls.transfer_makers import parent_call

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.mark.parametrize("by", ["header", "parameter"])
@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/api/events", {}),
        ("/v1/events", {}),
        ("/v1/agents", {}),
        ("/v1/calls/{call}", {}),
        ("/v1/calls/{call}/recording", {}),
        ("/v1/calls/{call}/listen", UPGRADE),
    ],
)
async def test_only_operators_choose_another_organization(
    start_api: StartApi, path: str, more: dict[str, str], by: str
) -> None:
    api: Api = await start_api({"dashboard": {"listen": True}})
    other = await api.as_another_organization()
    call = await api.services.database.write(lambda conn: parent_call(conn, other.organization_id))
    owner = await signed_in(api, "owner")
    path, headers = path.format(call=call.id), dict(more)
    if by == "header":
        headers["X-Organization"] = other.organization_id
    else:
        path += f"?organization={other.organization_id}"
    status, answer = await owner("GET", path, None, headers)
    assert (status, answer["error"]) == (403, "This needs the role operator")


@pytest.mark.parametrize("path", ["/v1/calls/{call}", "/v1/calls/{call}/recording", "/v1/calls/{call}/listen"])
async def test_a_call_of_another_organization_is_not_found(start_api: StartApi, path: str) -> None:
    api: Api = await start_api({"dashboard": {"listen": True}})
    other = await api.as_another_organization()
    call = await api.services.database.write(lambda conn: parent_call(conn, other.organization_id))
    owner = await signed_in(api, "owner")
    status, answer = await owner("GET", path.format(call=call.id), None, UPGRADE)
    assert (status, answer["error"]) == (404, "Call not found")
