"""The least role of each operation: viewers read; editors also change agents, tools, knowledge and sounds, and handle
calls; owners change everything of their organization; operators alone what belongs to none. A lesser role gets 403
over HTTP."""

from __future__ import annotations

from typing import Final

import pytest

from api.routes import ROUTES
from api.routing.route import Route
from storage.users.users import ROLES, Role, has_role
from tests.api.auth.test_user_sessions import signed_in
from tests.api.conftest import Api

NO_ID: Final = "00000000-0000-4000-8000-000000000000"

EDITED: Final = ("/agents", "/tools", "/knowledge", "/background-sounds")
CALL_CONTROL: Final = (
    "/calls",
    "/calls/test",
    "/calls/chat",
    "/calls/{id}/messages",
    "/calls/{id}/hangup",
    "/calls/{id}/transfer",
    "/calls/{id}/hold",
    "/calls/{id}/unhold",
    "/calls/{id}/whisper",
    "/calls/{id}/takeover",
)
TRIED: Final = {("POST", "/tools/{id}/try"), ("POST", "/calls/{id}/replay")}
"""They change nothing here, and may change things elsewhere."""
OWNED: Final = {
    ("DELETE", "/calls/{id}"),
    ("GET", "/calls/{id}/export"),
    ("GET", "/calls/export"),
    ("GET", "/users"),
    ("GET", "/users/{id}"),
    ("GET", "/audit"),
}
OPERATED: Final = ("/nodes", "/models", "/remote-models", "/phone-numbers/unknown-sources")
"""Of the whole installation."""


def _expected(route: Route) -> Role:
    if any(route.path == each or route.path.startswith(f"{each}/") for each in OPERATED):
        return "operator"
    if (route.method, route.path) in OWNED:
        return "owner"
    if (route.method, route.path) in TRIED:
        return "editor"
    if not route.writes:
        return "viewer"
    is_edited = any(route.path == each or route.path.startswith(f"{each}/") for each in EDITED)
    controls_call = route.method == "POST" and route.path in CALL_CONTROL
    return "editor" if is_edited or controls_call else "owner"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_each_operation_needs_the_role_that_was_decided(route: Route) -> None:
    assert route.role == _expected(route)


def test_the_listed_operations_exist() -> None:
    paths = {(route.method, route.path) for route in ROUTES}
    assert paths >= OWNED | TRIED | {("POST", path) for path in CALL_CONTROL}


@pytest.mark.parametrize("role", ROLES)
async def test_a_user_gets_403_exactly_where_the_role_is_too_low(api: Api, role: Role) -> None:
    user = await signed_in(api, role)
    refused = set()
    for route in ROUTES:
        for path in route.full_paths:
            status, answer = await user(route.method, path.replace("{id}", NO_ID).replace("{n}", "1"))
            if status == 403:
                assert answer["error"] == f"This needs the role {route.role}"
                refused.add(path)
    assert refused == {path for each in ROUTES if not has_role(role, each.role) for path in each.full_paths}
