"""What is refused for the state that something is in: the status and the words."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from storage.background_sounds import sounds
from tests.contract.kinds import NO_ID, Foreign
from tests.contract.makers import MAKERS, live_call
from tests.contract.server import Server
from tests.contract.tables.calls import CALLS
from tests.contract.world import World, world_of

NO_FUNDS = {"error": "Insufficient funds. Please top up your balance."}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"agentId": NO_ID}, "Agent not found"),
        ({"agentId": Foreign("agent")}, "Agent not found"),
        ({"phoneNumberId": NO_ID}, "Phone number not found"),
        ({"phoneNumberId": Foreign("trunk")}, "Phone number not found"),
        ({"agentId": NO_ID, "phoneNumberId": NO_ID}, "Agent not found"),
    ],
    ids=str,
)
def test_a_call_with_what_is_not_the_organizations_own_is_404(world: World, change: dict[str, Any], error: str) -> None:
    before = world.total(CALLS)
    answer = world.client("POST", "/calls", world.fill(CALLS.least() | change))
    assert (answer.status, answer.body) == (404, {"error": error})
    assert world.total(CALLS) == before


@pytest.mark.parametrize(("plan", "balance", "status"), [("free", 0, 201), ("paid", 0.01, 201), ("paid", 0, 402)])
def test_a_call_without_funds_is_402(server: Server, plan: Any, balance: float, status: int) -> None:
    organization_id, client = server.organization(plan=plan, balance=balance)
    agent, trunk = (MAKERS[kind](server, organization_id, client, 0) for kind in ("agent", "trunk"))
    answer = client("POST", "/calls", {"agentId": agent, "phoneNumberId": trunk, "to": "+41441234567"})
    assert answer.status == status
    if status == 402:
        assert answer.body == NO_FUNDS
        assert client("GET", "/calls").data == []


def test_an_ended_call_cannot_be_hung_up(world: World) -> None:
    answer = world.client("POST", f"/calls/{world.own['call']}/hangup")
    assert (answer.status, set(answer.body)) == (409, {"error"})


def test_the_webhook_of_a_call_that_goes_on_cannot_be_sent_again(server: Server, world: World) -> None:
    call = live_call(server, world.organization_id)
    answer = world.client("POST", f"/calls/{call.id}/webhook-deliveries")
    assert (answer.status, set(answer.body)) == (409, {"error"})


def test_a_preset_is_there_for_everyone_and_for_good(server: Server, world: World) -> None:
    fields = sounds.BackgroundSoundFields(name="Rain", description="On tin", file_size=44, duration_ms=30000)
    preset = str(uuid4())
    server.write(lambda conn: sounds.store_preset(conn, preset, fields))
    for client in (world.client, world.other):
        answer = client("DELETE", f"/background-sounds/{preset}")
        assert answer.fields == {"id"}
        (shown,) = (each for each in client("GET", "/background-sounds").data if each["id"] == preset)
        assert (shown["isSystemPreset"], shown["durationSeconds"]) == (True, 30.0)
        assert client("POST", "/agents", {"name": "Anna", "backgroundSoundId": preset}).status == 201


@pytest.mark.parametrize(
    ("mode", "needs"),
    [("registration", {"sipUsername", "sipPassword", "sipProxy"}), ("ip_allowlist", {"sipIp"})],
)
def test_a_trunk_needs_what_its_mode_needs(world: World, mode: str, needs: set[str]) -> None:
    made = world.client("POST", "/phone-numbers", {"number": f"9{len(needs)}", "provider": "sip"}).data
    for method, path, body in (
        ("POST", "/phone-numbers", {"number": "99", "provider": "sip", "sipMode": mode}),
        ("PATCH", f"/phone-numbers/{made['id']}", {"sipMode": mode}),
    ):
        assert world.client(method, path, body).fields == needs


def test_a_number_is_unique_in_its_organization(server: Server) -> None:
    world = world_of(server)
    first, second = ({"number": number, "provider": "sip"} for number in ("71", "72"))
    made = [world.client("POST", "/phone-numbers", body).data["id"] for body in (first, second)]
    assert world.client("POST", "/phone-numbers", first).fields == {"number"}
    assert world.client("PATCH", f"/phone-numbers/{made[1]}", {"number": "71"}).fields == {"number"}
    assert world.other("POST", "/phone-numbers", first).status == 201
