"""`/tools`"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.routing.route import Deleted, Exchange, Listed, Many, NoQuery, One, Route
from api.schemas.base import Paging
from api.schemas.tools import Tool, ToolCreate, ToolUpdate
from calls.tools.http_request import caller_variable_in_host
from config.errors import FieldProblem, Invalid, NotFound
from storage.agents import tools

_ADDRESSING: Final = frozenset(("url", "allow_variable_host"))


def create(exchange: Exchange[ToolCreate, NoQuery]) -> Tool:
    """POST /tools"""
    secrets = exchange.services.secrets
    fields = tools.ToolFields(**exchange.body.to_store(secrets))
    _check_host(fields.config)
    return Tool.of(tools.create(exchange.conn, exchange.owner, fields), secrets)


def page(exchange: Exchange[None, Paging]) -> Listed:
    """GET /tools"""
    query, secrets = exchange.query, exchange.services.secrets
    found = tools.page(exchange.conn, exchange.owner, limit=query.limit, offset=query.offset)
    return Listed((Tool.of(each, secrets) for each in found.items), found.total)


def get(exchange: Exchange[None, NoQuery]) -> Tool:
    """GET /tools/{id}"""
    return Tool.of(_stored(exchange), exchange.services.secrets)


def update(exchange: Exchange[ToolUpdate, NoQuery]) -> Tool:
    """PATCH /tools/{id}: only what the body has is changed."""
    secrets, stored = exchange.services.secrets, _stored(exchange)
    changes = exchange.body.to_store(secrets)
    if _ADDRESSING & changes["config"].keys():
        _check_host({**stored.config, **changes["config"]})
    return Tool.of(tools.update(exchange.conn, stored, changes), secrets)


def delete(exchange: Exchange[None, NoQuery]) -> None:
    """DELETE /tools/{id}"""
    if not tools.delete(exchange.conn, exchange.owner, exchange.item):
        raise NotFound("Tool not found")


def _check_host(config: Mapping[str, Any]) -> None:
    """`Invalid` when whoever calls could choose the server, and the owner has not said that they may."""
    name = caller_variable_in_host(config["url"])
    if name is not None and not config.get("allow_variable_host", False):
        problem = f"Must not take its host from {{{{{name}}}}}, which callers write; allowVariableHost lets them"
        raise Invalid([FieldProblem("config.url", problem)])


def _stored(exchange: Exchange[Any, NoQuery]) -> tools.Tool:
    stored = tools.get(exchange.conn, exchange.owner, exchange.item)
    if stored is None:
        raise NotFound("Tool not found")
    return stored


ROUTES = (
    Route(
        method="POST",
        path="/tools",
        quotas=("tools",),
        name="createTool",
        tag="Tools",
        summary="Create a tool",
        description="Agents use it in their calls when its description fits: the request is sent with what the "
        "language model gives for the parameters, and the model is told the answer, cut at 8000 characters. GET counts "
        "as harmless and may be sent before the caller's turn is certain to be over; other methods are not. Header "
        "values may be credentials: they are encrypted where they are stored, and shown to the organization's keys.",
        handler=create,
        body=ToolCreate,
        example={
            "name": "free_berths",
            "type": "http",
            "description": "How many berths are free on a day",
            "config": {
                "url": "https://harbour.example/api/berths",
                "method": "GET",
                "timeout": 3000,
                "headers": [{"key": "Authorization", "value": "Bearer {{berths_key}}"}],
                "body": [{"name": "day", "type": "string", "description": "As 2026-11-21", "required": True}],
            },
        },
        answer=One(Tool),
        status=201,
    ),
    Route(
        method="GET",
        path="/tools",
        name="listTools",
        tag="Tools",
        summary="List tools, newest first",
        handler=page,
        query=Paging,
        answer=Many(Tool),
    ),
    Route(
        method="GET",
        path="/tools/{id}",
        name="getTool",
        tag="Tools",
        summary="Get a tool",
        handler=get,
        item="Tool",
        answer=One(Tool),
    ),
    Route(
        method="PATCH",
        path="/tools/{id}",
        name="updateTool",
        tag="Tools",
        summary="Change a tool",
        description="A field that is absent stays as it is. The keys that `config` has replace the stored ones whole, "
        "its other keys stay.",
        handler=update,
        body=ToolUpdate,
        example={"config": {"timeout": 8000}},
        item="Tool",
        answer=One(Tool),
    ),
    Route(
        method="DELETE",
        path="/tools/{id}",
        name="deleteTool",
        tag="Tools",
        summary="Delete a tool",
        description="It goes out of the `toolIds` of every agent.",
        handler=delete,
        item="Tool",
        answer=Deleted(),
    ),
)
