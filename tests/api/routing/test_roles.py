"""The least role of each operation: viewers read; editors also change agents, tools, knowledge and sounds, and handle
calls; owners change everything of their organization; operators alone see SIP messages."""

from __future__ import annotations

from typing import Final

import pytest

from api.routes import ROUTES
from api.routing.route import Route
from storage.users.users import ROLES, Role

EDITED: Final = ("/agents", "/tools", "/knowledge", "/background-sounds")
CALL_CONTROL: Final = (
    "/calls",
    "/calls/test",
    "/calls/{id}/hangup",
    "/calls/{id}/transfer",
    "/calls/{id}/hold",
    "/calls/{id}/unhold",
    "/calls/{id}/whisper",
    "/calls/{id}/takeover",
)
TRIED: Final = {("POST", "/tools/{id}/try")}
"""They change nothing here, and may change things elsewhere."""
OWNED: Final = {("DELETE", "/calls/{id}"), ("GET", "/calls/{id}/export")}
OPERATED: Final = {("GET", "/calls/{id}/sip")}


def _expected(route: Route) -> Role:
    if (route.method, route.path) in OPERATED:
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


def test_every_role_is_the_least_one_of_some_operation() -> None:
    assert {route.role for route in ROUTES} == set(ROLES)
    paths = {(route.method, route.path) for route in ROUTES}
    assert paths >= OWNED | OPERATED | TRIED | {("POST", path) for path in CALL_CONTROL}
