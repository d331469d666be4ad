"""Handlers of `/agents`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from api.resources.accounts.author import author_of
from api.resources.sounds import hold_music
from api.routing.route import (
    DataResponse,
    DeletedResponse,
    NoQuery,
    PageResponse,
    RequestContext,
    Route,
    ViewPage,
    as_json,
)
from api.routing.validation import invalid
from api.schemas.agents import (
    Agent,
    AgentCreate,
    AgentQuery,
    AgentSettings,
    AgentUpdate,
    AgentWarning,
    TransferTarget,
    agent_view,
)
from api.schemas.base import View
from api.services import Services
from calls.outbound.permissions import allowed_destination
from config.errors import FieldProblem, NotFound
from config.secrets import SecretUnreadable
from storage.accounts import organizations
from storage.agents import agents, tools
from storage.background_sounds import sounds
from storage.phone_numbers import phone_numbers
from storage.tables.agent_fields import AgentFields

SECRET_TOKEN: Final = "post_call_webhook_secret_encrypted"
_WARNED_FIELDS: Final = {"language": "languageHint", "voice": "voiceId"}


def create(context: RequestContext[AgentCreate, NoQuery]) -> View:
    """POST /agents"""
    _require_usable_references(context)
    fields = AgentFields(**context.body.to_store(context.services.secrets, only_given=False))
    require_voicemail_message(fields)
    music_id = hold_music.store(context)
    return _view(context, agents.create(context.conn, context.owner, fields, music_id, author=author_of(context)))


def page(context: RequestContext[None, AgentQuery]) -> ViewPage:
    """GET /agents"""
    conn, owner, query = context.conn, context.owner, context.query

    def render(states: list[agents.AgentState]) -> Iterator[tuple[agents.AgentState, bytes]]:
        by_id = {state.id: state for state in states}
        for stored in agents.get_many(conn, owner, list(by_id)):
            yield by_id[stored.id], as_json(_view(context, stored))

    found = agents.page(conn, owner, limit=query.limit, offset=query.offset, search=query.search)
    return ViewPage(context.services.json_cache.get_or_render(found.items, render), found.total)


def get(context: RequestContext[None, NoQuery]) -> View:
    """GET /agents/{id}"""
    return _found(context, agents.get(context.conn, context.owner, context.item))


def update(context: RequestContext[AgentUpdate, NoQuery]) -> View:
    """PATCH /agents/{id}: only the fields in the body change."""
    changes = context.body.to_store(context.services.secrets, only_given=True)
    return save(context, _with_unchanged_secret(context, changes))


def save(context: RequestContext[Any, NoQuery], changes: dict[str, Any]) -> View:
    """Make the agent in the path have `changes`, names as in `AgentFields`. They are those of the body, whose
    references are checked, and perhaps others. Raises `NotFound`, and `Invalid` for what cannot be used."""
    music = hold_music.changes(context)
    music_before = hold_music.id_before(context) if music else None
    stored = agents.update(context.conn, context.owner, context.item, changes | music, author=author_of(context))
    agent = _found(context, stored)
    if stored is not None:
        require_voicemail_message(stored)
    _require_usable_references(context)
    hold_music.remove_if_unused(context, music_before)
    if "language_hint" in changes:
        context.after_commit.append(context.services.languages_changed)
    return agent


def delete(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /agents/{id}"""
    music_before = hold_music.id_before(context)
    if not agents.delete(context.conn, context.owner, context.item):
        raise NotFound("Agent not found")
    hold_music.remove_if_unused(context, music_before)
    context.after_commit.append(context.services.documents_changed)


def _found(context: RequestContext[Any, NoQuery], stored: agents.Agent | None) -> View:
    if stored is None:
        raise NotFound("Agent not found")
    return _view(context, stored)


def _view(context: RequestContext[Any, Any], stored: agents.Agent) -> View:
    voice = None if stored.voice_id is None else UUID(stored.voice_id)
    gaps = context.services.language_gaps(stored.language_hint, voice)
    return agent_view(stored, [AgentWarning(field=_WARNED_FIELDS[gap.of], message=gap.text) for gap in gaps])


def _with_unchanged_secret(context: RequestContext[Any, NoQuery], changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the changes with the stored token of the webhook's secret if the new one is the same text, because each
    encryption gives another token."""
    secrets, token = context.services.secrets, changes.get(SECRET_TOKEN)
    stored = None if token is None else agents.get(context.conn, context.owner, context.item)
    before = None if stored is None else stored.post_call_webhook_secret_encrypted
    if before is None or token is None:
        return changes
    try:
        is_same = secrets.decrypt(before) == secrets.decrypt(token)
    except SecretUnreadable:
        return changes
    return {**changes, SECRET_TOKEN: before} if is_same else changes


def require_voicemail_message(agent: AgentFields) -> None:
    """Raises `Invalid` for an agent that is to leave a message and has none."""
    if agent.voicemail_detection == "leave_message" and not (agent.voicemail_message or "").strip():
        raise invalid([FieldProblem("voicemailMessage", "Required with voicemailDetection leave_message")])


def _require_usable_references(context: RequestContext[Any, NoQuery]) -> None:
    """Raises `Invalid` with each id in the body that the organization cannot use, and each transfer target that it may
    not call."""
    problems = reference_problems(context.conn, context.owner, context.services, context.body)
    if problems:
        raise invalid(problems)


def reference_problems(conn: sa.Connection, owner: str, services: Services, body: AgentSettings) -> list[FieldProblem]:
    """Returns the problem of each id in the body that the organization cannot use, and of each transfer target that it
    may not call."""
    catalogue = services.catalogue
    voices = set() if body.voice_id is None else {voice.id for voice in catalogue.voices()}
    models = set() if body.slm_model_id is None else {model.id for model in catalogue.language_models()}
    own_tools = _own_tools(conn, owner, body.tool_ids)
    references: list[tuple[str, UUID | None, set[UUID]]] = [
        ("slmModelId", body.slm_model_id, models),
        ("voiceId", body.voice_id, voices),
        ("backgroundSoundId", body.background_sound_id, _usable_sounds(conn, owner, body.background_sound_id)),
        *((f"toolIds.{index}", tool, own_tools) for index, tool in enumerate(body.tool_ids or [])),
    ]
    problems = [
        FieldProblem(name, "Does not exist")
        for name, value, usable in references
        if value is not None and value not in usable
    ]
    return problems + _target_problems(conn, owner, body.transfer_targets)


def _target_problems(conn: sa.Connection, owner: str, targets: list[TransferTarget]) -> list[FieldProblem]:
    """Returns the problem of each transfer target whose phone number does not exist, or whose number may not be
    called."""
    organization = organizations.get(conn, owner) if targets else None
    if organization is None:
        return []
    ids = {str(target.phone_number_id) for target in targets if target.phone_number_id is not None}
    numbers = {each: phone_numbers.get(conn, owner, each) for each in ids}
    problems = []
    for index, target in enumerate(targets):
        number = None if target.phone_number_id is None else numbers[str(target.phone_number_id)]
        if number is None and target.phone_number_id is not None:
            problems.append(FieldProblem(f"transferTargets.{index}.phoneNumberId", "Does not exist"))
        elif allowed_destination(number, organization, target.number) is None:
            problems.append(FieldProblem(f"transferTargets.{index}.number", "Calls may not go there"))
    return problems


def _own_tools(conn: sa.Connection, owner: str, ids: list[UUID] | None) -> set[UUID]:
    """Those of these ids that are tools of the organization."""
    if not ids:
        return set()
    return {UUID(tool.id) for tool in tools.of_agent(conn, owner, [str(each) for each in ids])}


def _usable_sounds(conn: sa.Connection, owner: str, sound: UUID | None) -> set[UUID]:
    """The id of the background sound if the organization can use it, else nothing."""
    if sound is None or sounds.get(conn, owner, str(sound)) is None:
        return set()
    return {sound}


ROUTES = (
    Route(
        method="POST",
        path="/agents",
        quotas=("agents", "sound_bytes"),
        quotas_before_prepare=("agents",),
        name="createAgent",
        role="editor",
        tag="Agents",
        summary="Create an agent",
        description="The file of `holdMusicUrl` is fetched before the agent is stored.",
        handler=create,
        prepare=hold_music.fetch,
        undo=hold_music.remove_file,
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
                {"name": "berth_wanted", "description": "Whether the caller wants a berth", "type": "boolean"}
            ],
            "postCallWebhookUrl": "https://office.example/calls",
        },
        response=DataResponse(Agent),
        status=201,
    ),
    Route(
        method="GET",
        path="/agents",
        name="listAgents",
        role="viewer",
        tag="Agents",
        summary="List agents, newest first",
        handler=page,
        query=AgentQuery,
        response=PageResponse(Agent),
    ),
    Route(
        method="GET",
        path="/agents/{id}",
        name="getAgent",
        role="viewer",
        tag="Agents",
        summary="Get an agent",
        handler=get,
        item="Agent",
        response=DataResponse(Agent),
    ),
    Route(
        method="PATCH",
        path="/agents/{id}",
        quotas=("sound_bytes",),
        quotas_before_prepare=(),
        name="updateAgent",
        role="editor",
        tag="Agents",
        summary="Change an agent",
        description="An absent field stays as it is; null clears a nullable field. The file of another `holdMusicUrl` "
        "is fetched before the agent is changed. A change makes a new version, which the calls that begin afterwards "
        "have; a PATCH that changes nothing makes none.",
        handler=update,
        prepare=hold_music.fetch,
        undo=hold_music.remove_file,
        body=AgentUpdate,
        example={"turnEndpointDelay": 300, "languageHint": None, "stayOnCall": True},
        item="Agent",
        response=DataResponse(Agent),
        errors=(409,),
    ),
    Route(
        method="DELETE",
        path="/agents/{id}",
        name="deleteAgent",
        role="editor",
        tag="Agents",
        summary="Delete an agent",
        description="Its phone numbers have no agent afterwards; its calls stay.",
        handler=delete,
        item="Agent",
        response=DeletedResponse(),
    ),
)
