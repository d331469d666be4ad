"""The private members of aiohttp that `api.serving.http_server` uses: a version that changes them fails here."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import aiohttp
import pytest
from aiohttp import web, web_protocol
from aiohttp.http_exceptions import BadHttpMessage

from api.serving import http_server

WHAT_TO_DO = "aiohttp {version} has changed {member}: adapt api/serving/http_server.py, then requirements.in"


def changed(member: str) -> str:
    return WHAT_TO_DO.format(version=aiohttp.__version__, member=member)


def borrowed(own: type[object]) -> Iterator[str]:
    """The private members that a class of `http_server` reads, sets or overrides without defining them."""
    (tree,) = ast.parse(inspect.getsource(own)).body
    assert isinstance(tree, ast.ClassDef)
    of_self = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    mine = {name for name in vars(own) if callable(vars(own)[name])} | set(getattr(own, "__slots__", ()))
    yield from sorted(name for name in of_self - mine if name.startswith("_"))


def test_request_handler_has_the_members_that_a_connection_uses() -> None:
    names = set(borrowed(http_server.HttpConnection))
    assert {"_messages", "_waiter", "_keepalive_handle", "_request_count", "_next_keepalive_close_time"} <= names
    for name in [*names, "_make_error_handler"]:
        assert hasattr(web.RequestHandler, name) or name == "_loop", changed(f"RequestHandler.{name}")


def test_the_keep_alive_timer_is_a_method_without_arguments() -> None:
    signature = inspect.signature(web.RequestHandler._process_keepalive)
    assert list(signature.parameters) == ["self"], changed("RequestHandler._process_keepalive")


def test_a_parse_error_is_queued_as_a_message() -> None:
    error = BadHttpMessage("wrong")
    info = web_protocol._ErrInfo(400, error, "")
    assert (info.status, info.exc, info.message) == (400, error, ""), changed("web_protocol._ErrInfo")
    parameters = list(inspect.signature(web.RequestHandler._make_error_handler).parameters)
    assert parameters == ["self", "err_info"], changed("RequestHandler._make_error_handler")
    assert web_protocol.ERROR.method == "UNKNOWN", changed("web_protocol.ERROR")


@pytest.mark.parametrize("member", ["_make_server"])
def test_a_runner_has_the_method_that_makes_its_server(member: str) -> None:
    assert inspect.iscoroutinefunction(getattr(web.AppRunner, member)), changed(f"AppRunner.{member}")


async def test_a_server_has_its_event_loop_and_a_connection_its_message_queue() -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        raise AssertionError(request)

    server = web.Server(handle)
    assert hasattr(server, "_loop"), changed("Server._loop")
    assert (server.request_handler, server.request_factory) != (None, None), changed("Server.request_handler")
    connection = web.RequestHandler(server, loop=server._loop)
    for name in borrowed(http_server.HttpConnection):
        assert hasattr(connection, name), changed(f"RequestHandler.{name}")
    assert not connection._messages
    connection._messages.append(
        (web_protocol._ErrInfo(400, BadHttpMessage("wrong"), ""), aiohttp.streams.EMPTY_PAYLOAD)
    )
    message, _ = connection._messages.pop()
    assert isinstance(message, web_protocol._ErrInfo), changed("RequestHandler._messages")
    assert message.status == 400, changed("_ErrInfo.status")
