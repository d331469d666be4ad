"""POST /calls/{id}/hold and POST /calls/{id}/unhold."""

from __future__ import annotations

from uuid import uuid4

import pytest

from config.errors import Conflict
from storage.calls.calls import Call
from tests.api.conftest import Api, StartApi
from tests.storage.calls.transfer_makers import parent_call

HOLDS = [("hold", True), ("unhold", False)]


class Holds:
    """`api.services.Services.set_held`: `asked` are the requests; with `refuses`, the call is not in progress."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.refuses = False

    async def set_held(self, call_id: str, on: bool) -> None:
        if self.refuses:
            raise Conflict("The call is not in progress")
        self.asked.append((call_id, on))


@pytest.fixture
def holds() -> Holds:
    return Holds()


@pytest.fixture
async def api(start_api: StartApi, holds: Holds) -> Api:
    started: Api = await start_api(set_held=holds.set_held)
    return started


async def in_progress(api: Api) -> Call:
    """A call of the organization."""
    return await api.services.database.write(lambda conn: parent_call(conn, api.organization_id))


@pytest.mark.parametrize(("action", "on"), HOLDS)
async def test_the_call_is_held_or_resumed_and_returned(api: Api, holds: Holds, action: str, on: bool) -> None:
    call = await in_progress(api)
    answer = await api("POST", f"/calls/{call.id}/{action}")
    assert answer == await api("GET", f"/calls/{call.id}")
    assert (answer[0], answer[1]["data"]["id"], holds.asked) == (200, call.id, [(call.id, on)])


@pytest.mark.parametrize(("action", "on"), HOLDS)
async def test_a_call_that_is_not_in_progress_is_409(api: Api, holds: Holds, action: str, on: bool) -> None:
    call = await in_progress(api)
    holds.refuses = True
    answer = await api("POST", f"/calls/{call.id}/{action}")
    assert answer == (409, {"error": "The call is not in progress"})


@pytest.mark.parametrize(("action", "on"), HOLDS)
async def test_the_call_of_another_organization_and_an_unknown_one_are_404(
    api: Api, holds: Holds, action: str, on: bool
) -> None:
    call = await in_progress(api)
    other = await api.as_another_organization()
    for client, call_id in ((other, call.id), (api, str(uuid4()))):
        assert await client("POST", f"/calls/{call_id}/{action}") == (404, {"error": "Call not found"})
    assert holds.asked == []
