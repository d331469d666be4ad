"""`/agents`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from api.routing.route import Deleted, Exchange, Listed, Many, NoQuery, One, Route, as_json
from api.routing.validation import refusal
from api.schemas.agents import Agent, AgentCreate, AgentQuery, AgentSettings, AgentUpdate
from config.errors import FieldProblem, NotFound
from storage.agents import agents, tools
from storage.background_sounds import sounds


def create(exchange: Exchange[AgentCreate, NoQuery]) -> Agent:
    """POST /agents"""
    _refuse_unknown_ids(exchange)
    fields = agents.AgentFields(**exchange.body.to_store(exchange.services.secrets, only_given=False))
    return Agent.of(agents.create(exchange.conn, exchange.owner, fields))


def page(exchange: Exchange[None, AgentQuery]) -> Listed:
    """GET /agents"""
    conn, owner, query = exchange.conn, exchange.owner, exchange.query

    def render(versions: list[agents.Version]) -> Iterator[tuple[agents.Version, bytes]]:
        by_id = {version.id: version for version in versions}
        for stored in agents.get_some(conn, owner, list(by_id)):
            yield by_id[stored.id], as_json(Agent.of(stored))

    found = agents.page(conn, owner, limit=query.limit, offset=query.offset, search=query.search)
    return Listed(exchange.services.rendered.of(found.items, render), found.total)


def get(exchange: Exchange[None, NoQuery]) -> Agent:
    """GET /agents/{id}"""
    return _found(agents.get(exchange.conn, exchange.owner, exchange.item))


def update(exchange: Exchange[AgentUpdate, NoQuery]) -> Agent:
    """PATCH /agents/{id}: only what the body has is changed."""
    changes = exchange.body.to_store(exchange.services.secrets, only_given=True)
    stored = agents.update(exchange.conn, exchange.owner, exchange.item, changes)
    agent = _found(stored)
    _refuse_unknown_ids(exchange)
    if "language_hint" in changes:
        exchange.after_commit.append(exchange.services.languages_changed)
    return agent


def delete(exchange: Exchange[None, NoQuery]) -> None:
    """DELETE /agents/{id}"""
    if not agents.delete(exchange.conn, exchange.owner, exchange.item):
        raise NotFound("Agent not found")
    exchange.after_commit.append(exchange.services.documents_waiting)


def _found(stored: agents.Agent | None) -> Agent:
    if stored is None:
        raise NotFound("Agent not found")
    return Agent.of(stored)


def _refuse_unknown_ids(exchange: Exchange[Any, NoQuery]) -> None:
    """Ids must name something that the organization can use."""
    body: AgentSettings = exchange.body
    voices = {voice.id for voice in exchange.services.catalogue.voices()}
    models = {model.id for model in exchange.services.catalogue.language_models()}
    own_tools = _own_tools(exchange, body.tool_ids)
    wanted: list[tuple[str, UUID | None, set[UUID]]] = [
        ("slmModelId", body.slm_model_id, models),
        ("voiceId", body.voice_id, voices),
        ("backgroundSoundId", body.background_sound_id, _usable(exchange, body.background_sound_id)),
        *((f"toolIds.{index}", tool, own_tools) for index, tool in enumerate(body.tool_ids or [])),
    ]
    problems = [
        FieldProblem(name, "Does not exist")
        for name, value, known in wanted
        if value is not None and value not in known
    ]
    if problems:
        raise refusal(problems)


def _own_tools(exchange: Exchange[Any, NoQuery], ids: list[UUID] | None) -> set[UUID]:
    """Those of these tools that the organization has."""
    if not ids:
        return set()
    return {UUID(tool.id) for tool in tools.of_agent(exchange.conn, exchange.owner, [str(each) for each in ids])}


def _usable(exchange: Exchange[Any, NoQuery], sound: UUID | None) -> set[UUID]:
    """The background sound, if the organization can use it."""
    if sound is None or sounds.get(exchange.conn, exchange.owner, str(sound)) is None:
        return set()
    return {sound}


ROUTES = (
    Route(
        method="POST",
        path="/agents",
        quotas=("agents",),
        name="createAgent",
        tag="Agents",
        summary="Create an agent",
        handler=create,
        body=AgentCreate,
        example={
            "name": "Reception",
            "systemPrompt": "You answer the telephone of the harbour office for {{caller}}.",
            "firstSpeaker": "agent",
            "agentGreeting": "Harbour office, good day!",
            "agentGreetingEnabled": True,
            "languageHint": "en",
            "postCallSummaryEnabled": True,
            "postCallExtractionSchema": [
                {"name": "berth_wanted", "description": "Whether a berth is wanted", "type": "boolean"}
            ],
            "postCallWebhookUrl": "https://office.example/calls",
        },
        answer=One(Agent),
        status=201,
    ),
    Route(
        method="GET",
        path="/agents",
        name="listAgents",
        tag="Agents",
        summary="List agents, newest first",
        handler=page,
        query=AgentQuery,
        answer=Many(Agent),
    ),
    Route(
        method="GET",
        path="/agents/{id}",
        name="getAgent",
        tag="Agents",
        summary="Get an agent",
        handler=get,
        item="Agent",
        answer=One(Agent),
    ),
    Route(
        method="PATCH",
        path="/agents/{id}",
        name="updateAgent",
        tag="Agents",
        summary="Change an agent",
        description="A field that is absent stays as it is; null clears a field that can be null.",
        handler=update,
        body=AgentUpdate,
        example={"turnEndpointDelay": 300, "languageHint": None},
        item="Agent",
        answer=One(Agent),
    ),
    Route(
        method="DELETE",
        path="/agents/{id}",
        name="deleteAgent",
        tag="Agents",
        summary="Delete an agent",
        description="Its phone numbers lose their agent; its calls stay.",
        handler=delete,
        item="Agent",
        answer=Deleted(),
    ),
)
