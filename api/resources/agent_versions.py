"""Handlers of `/agents/{id}/versions`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa
from pydantic_core import from_json, to_json

from api.resources.agents import save
from api.resources.sounds import hold_music
from api.routing.route import (
    CheckedRequest,
    DataResponse,
    NoQuery,
    PageResponse,
    RequestContext,
    Route,
    ViewPage,
    as_json,
)
from api.routing.validation import check_body
from api.schemas.agent_versions import AgentVersion, AgentVersionDetail
from api.schemas.agents import Agent, AgentUpdate, version_view
from api.schemas.base import BodyContext, NoBody, Paging, View
from config.errors import NotFound
from storage.agents import agents, versions
from storage.background_sounds.hold_music import HoldMusicFile

NOUN: Final = "Agent version"


class VersionQuery(Paging):
    """Query parameters of the list of versions."""


def page(context: RequestContext[None, VersionQuery]) -> ViewPage:
    """GET /agents/{id}/versions"""
    _require_agent(context.conn, context)
    found = versions.page(context.conn, context.item, limit=context.query.limit, offset=context.query.offset)
    return ViewPage([AgentVersion.of(each) for each in found.items], found.total)


def get(context: RequestContext[None, NoQuery]) -> AgentVersionDetail:
    """GET /agents/{id}/versions/{n}"""
    return AgentVersionDetail.of_fields(_version(context.conn, context))


async def fetch_music(checked: CheckedRequest[NoBody, NoQuery]) -> HoldMusicFile | None:
    """Fetch the hold music of the version if the agent has another one now, before the transaction of POST
    /agents/{id}/versions/{n}/restore."""
    found = await checked.services.database.read(lambda conn: _version(conn, checked), owner=checked.owner)
    body: Any = _as_body(checked, found)
    return await hold_music.fetch(replace(checked, body=body))


def restore(context: RequestContext[NoBody, NoQuery]) -> View:
    """POST /agents/{id}/versions/{n}/restore: as a PATCH with all fields of the version but the webhook's secret, which
    may have been replaced because others know it."""
    found = _version(context.conn, context)
    body: Any = _as_body(context, found)
    changes = body.to_store(context.services.secrets, only_given=True)
    return save(replace(context, body=body), {**changes, "system_prompt": found.fields.system_prompt})


def _as_body(checked: CheckedRequest[Any, Any], found: versions.VersionWithFields) -> AgentUpdate:
    """Returns the body that sets what the version has, except the secret and a system prompt that was not set. Raises
    `Invalid` for a value that agents may not have any more."""
    fields = from_json(as_json(version_view(found.fields)))
    del fields["postCallWebhookSecretSet"]
    if fields["systemPrompt"] is None:
        del fields["systemPrompt"]
    return check_body(AgentUpdate, to_json(fields), BodyContext.of(checked.services.settings))


def _require_agent(conn: sa.Connection, checked: CheckedRequest[Any, Any]) -> None:
    if agents.get(conn, checked.owner, checked.item) is None:
        raise NotFound("Agent not found")


def _version(conn: sa.Connection, checked: CheckedRequest[Any, Any]) -> versions.VersionWithFields:
    _require_agent(conn, checked)
    found = versions.get(conn, checked.item, checked.number)
    if found is None:
        raise NotFound(f"{NOUN} not found")
    return found


ROUTES = (
    Route(
        method="GET",
        path="/agents/{id}/versions",
        name="listAgentVersions",
        role="viewer",
        tag="Agents",
        summary="List the versions of an agent, newest first",
        description=f"The newest {versions.MAX_VERSIONS} are kept.",
        handler=page,
        query=VersionQuery,
        item="Agent",
        response=PageResponse(AgentVersion),
    ),
    Route(
        method="GET",
        path="/agents/{id}/versions/{n}",
        name="getAgentVersion",
        role="viewer",
        tag="Agents",
        summary="Get a version of an agent with the agent's fields",
        handler=get,
        item="Agent",
        numbered=NOUN,
        response=DataResponse(AgentVersionDetail),
    ),
    Route(
        method="POST",
        path="/agents/{id}/versions/{n}/restore",
        quotas=("sound_bytes",),
        quotas_before_prepare=(),
        name="restoreAgentVersion",
        role="editor",
        tag="Agents",
        summary="Give an agent the fields that it had in a version",
        description="Makes a new version, unless the agent has these fields already; the webhook's secret stays as it "
        "is. 400 names each field whose value cannot be used any more, such as a tool or a sound that was "
        "deleted, and changes nothing. Another `holdMusicUrl` is fetched again.",
        handler=restore,
        prepare=fetch_music,
        undo=hold_music.remove_file,
        body=NoBody,
        item="Agent",
        numbered=NOUN,
        response=DataResponse(Agent),
        errors=(409,),
    ),
)
