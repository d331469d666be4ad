"""Handlers of `/tools`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.auth.principal import PRINCIPAL
from api.resources.accounts.author import author_of
from api.routing.route import (
    CheckedRequest,
    DataResponse,
    DeletedResponse,
    NoQuery,
    PageResponse,
    RequestContext,
    Route,
    ViewPage,
)
from api.schemas.base import Paging
from api.schemas.tools import Tool, ToolCreate, ToolTrialView, ToolTry, ToolUpdate
from calls.tools.http_request import caller_variable_in_host
from calls.tools.http_tool import ToolHttpAccess
from calls.tools.trial import ToolTrial, try_tool
from config.errors import FieldProblem, Invalid, NotFound
from config.secrets import Secrets
from storage.agents import tools
from storage.users.users import has_role

_URL_FIELDS: Final = frozenset(("url", "allow_variable_host"))


def create(context: RequestContext[ToolCreate, NoQuery]) -> Tool:
    """POST /tools"""
    secrets = context.services.secrets
    fields = tools.ToolFields(**context.body.to_store(secrets))
    _check_host(fields.config)
    tools.require_free_name(context.conn, context.owner, fields.name)
    return Tool.of(tools.create(context.conn, context.owner, fields), secrets)


def page(context: RequestContext[None, Paging]) -> ViewPage:
    """GET /tools"""
    query, secrets = context.query, _shown_secrets(context)
    found = tools.page(context.conn, context.owner, limit=query.limit, offset=query.offset)
    return ViewPage((Tool.of(each, secrets) for each in found.items), found.total)


def get(context: RequestContext[None, NoQuery]) -> Tool:
    """GET /tools/{id}"""
    return Tool.of(_stored(context), _shown_secrets(context))


def update(context: RequestContext[ToolUpdate, NoQuery]) -> Tool:
    """PATCH /tools/{id}"""
    stored, secrets = _stored(context), context.services.secrets
    changes = context.body.to_store(secrets)
    if _URL_FIELDS & changes["config"].keys():
        _check_host({**stored.config, **changes["config"]})
    if changes.get("name", stored.name) != stored.name:
        tools.require_free_name(context.conn, context.owner, changes["name"])
    return Tool.of(tools.update(context.conn, stored, changes), secrets)


def delete(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /tools/{id}"""
    if not tools.delete(context.conn, context.owner, context.item, author=author_of(context)):
        raise NotFound("Tool not found")


async def run_trial(checked: CheckedRequest[ToolTry, NoQuery]) -> ToolTrial:
    """Send the request of a tool, before the transaction. Raises `NotFound`."""
    services, body = checked.services, checked.body
    stored = await services.database.read(
        lambda conn: tools.get(conn, checked.owner, checked.item), owner=checked.owner
    )
    if stored is None:
        raise NotFound("Tool not found")
    http = ToolHttpAccess(services.http_client, services.tool_trials, services.secrets)
    return await try_tool(stored, body.arguments, body.context_variables, http)


def show_trial(context: RequestContext[ToolTry, NoQuery]) -> ToolTrialView:
    """POST /tools/{id}/try"""
    return ToolTrialView.of(context.prepared)


def _shown_secrets(context: RequestContext[Any, Any]) -> Secrets | None:
    """What decrypts the values of headers for those who may change tools; None for viewers."""
    hidden = context.http is not None and not has_role(context.http[PRINCIPAL].role, "editor")
    return None if hidden else context.services.secrets


def _check_host(config: Mapping[str, Any]) -> None:
    """Raises `Invalid` if a caller could choose the host of the URL, and the tool does not allow that."""
    name = caller_variable_in_host(config["url"])
    if name is not None and not config.get("allow_variable_host", False):
        problem = f"Must not take its host from {{{{{name}}}}}, which callers set, unless allowVariableHost is true"
        raise Invalid([FieldProblem("config.url", problem)])


def _stored(context: RequestContext[Any, NoQuery]) -> tools.StoredTool:
    stored = tools.get(context.conn, context.owner, context.item)
    if stored is None:
        raise NotFound("Tool not found")
    return stored


ROUTES = (
    Route(
        method="POST",
        path="/tools",
        quotas=("tools",),
        name="createTool",
        role="editor",
        tag="Tools",
        summary="Create a tool",
        description="The language model calls the tool when its description fits: the request is sent with the model's "
        "arguments, and the model gets the response, truncated to 8000 characters. Its name differs from those of the "
        "organization's other tools. GET counts as harmless and may be "
        "sent before the end of the caller's turn is certain; other methods are not. Header values may be credentials: "
        "they are stored encrypted, and returned to the organization's keys and to users who may change tools.",
        handler=create,
        body=ToolCreate,
        example={
            "name": "free_berths",
            "type": "http",
            "description": "Number of free berths on a day",
            "config": {
                "url": "https://harbour.example/api/berths",
                "method": "GET",
                "timeout": 3000,
                "headers": [{"key": "Authorization", "value": "Bearer {{berths_key}}"}],
                "body": [{"name": "day", "type": "string", "description": "As 2026-11-21", "required": True}],
            },
        },
        response=DataResponse(Tool),
        status=201,
    ),
    Route(
        method="GET",
        path="/tools",
        name="listTools",
        role="viewer",
        tag="Tools",
        summary="List tools, newest first",
        handler=page,
        query=Paging,
        response=PageResponse(Tool),
    ),
    Route(
        method="GET",
        path="/tools/{id}",
        name="getTool",
        role="viewer",
        tag="Tools",
        summary="Get a tool",
        handler=get,
        item="Tool",
        response=DataResponse(Tool),
    ),
    Route(
        method="PATCH",
        path="/tools/{id}",
        name="updateTool",
        role="editor",
        tag="Tools",
        summary="Change a tool",
        description="An absent field stays as it is. Each key of `config` in the body replaces its stored value "
        "completely; the other keys stay.",
        handler=update,
        body=ToolUpdate,
        example={"config": {"timeout": 8000}},
        item="Tool",
        response=DataResponse(Tool),
    ),
    Route(
        method="POST",
        path="/tools/{id}/try",
        name="tryTool",
        role="editor",
        tag="Tools",
        summary="Try a tool",
        description="Sends the tool's request with these arguments, as in a call: with the same rules for addresses, "
        "the same timeout and the same limits of the response. The tool may change something at its server. A failure "
        "of the tool, and arguments that do not fit its parameters, are results with `ok` false.",
        prepare=run_trial,
        handler=show_trial,
        body=ToolTry,
        example={"arguments": {"day": "2026-11-21"}, "contextVariables": {"berths_key": "k-1"}},
        item="Tool",
        response=DataResponse(ToolTrialView),
        read_only=True,
    ),
    Route(
        method="DELETE",
        path="/tools/{id}",
        name="deleteTool",
        role="editor",
        tag="Tools",
        summary="Delete a tool",
        description="It is removed from the `toolIds` of every agent.",
        handler=delete,
        item="Tool",
        response=DeletedResponse(),
    ),
)
