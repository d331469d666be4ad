"""Handlers of `POST /calls/chat` and `POST /calls/{id}/messages`: conversations without sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from api.resources.agents import reference_problems, require_voicemail_message
from api.resources.calls.calls import active_agent
from api.routing.route import CheckedRequest, DataResponse, NoQuery, RequestContext, Route
from api.routing.validation import invalid
from api.schemas.calls import Call
from api.schemas.chats import ChatCreate, ChatMessage, ChatMessageCreate
from calls.admission.rejection import RETRY_AFTER_S
from calls.chat.chats import require_room
from config.errors import Conflict, FieldProblem, NotFound, Unavailable
from storage.agents import agents
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import TranscriptItem

Creation = CheckedRequest[ChatCreate, NoQuery]


@dataclass(frozen=True)
class OpenedChat:
    """A chat that runs, and what the agent has said first."""

    call_id: str
    transcript: Sequence[TranscriptItem]


async def open_chat(checked: Creation) -> OpenedChat:
    """Store and run a chat, before the transaction of POST /calls/chat."""
    services = checked.services
    reason = services.call_rejection_reason()
    if reason is not None:
        raise Unavailable(f"No chats are admitted now: {reason}", RETRY_AFTER_S)
    stored, agent = await services.database.write(lambda conn: _store(conn, checked), owner=checked.owner)
    return OpenedChat(stored.id, await services.open_chat(stored, agent))


async def end_chat(checked: Creation, opened: OpenedChat) -> None:
    """The response could not be stored: nobody knows of the chat."""
    await checked.services.hangup(opened.call_id)


def _store(conn: sa.Connection, checked: Creation) -> tuple[calls.Call, Agent]:
    """Returns the chat, and the agent that it has."""
    body, owner = checked.body, checked.owner
    agent = active_agent(conn, owner, str(body.agent_id))
    if body.version is not None:
        found = agents.at_version(conn, agent, body.version)
        if found is None:
            raise NotFound("Agent version not found")
        agent = found
    if body.agent is not None:
        agent = _draft(conn, checked, agent)
    require_room(conn, owner)
    is_draft = body.agent is not None
    stored = calls.create_chat(
        conn,
        organization_id=owner,
        agent_id=agent.id,
        agent_version=None if is_draft else agent.version,
        context_variables=body.context_variables,
        metadata={"draft": True} if is_draft else {},
    )
    return stored, agent


def _draft(conn: sa.Connection, checked: Creation, agent: Agent) -> Agent:
    """Returns the agent with the changes of the body. Raises `Invalid` for what it could not be saved with."""
    changes = checked.body.agent
    assert changes is not None
    draft = replace(agent, **changes.to_store(checked.services.secrets, only_given=True))
    problems = reference_problems(conn, checked.owner, checked.services, changes)
    if problems:
        raise invalid([FieldProblem(f"agent.{each.field}", each.message) for each in problems])
    require_voicemail_message(draft)
    return draft


def create(context: RequestContext[ChatCreate, NoQuery]) -> Call:
    """POST /calls/chat"""
    opened: OpenedChat = context.prepared
    stored = calls.get(context.conn, context.owner, opened.call_id)
    if stored is None:
        raise NotFound("Call not found")
    transcribed = replace(stored, transcript=list(opened.transcript))
    return Call.of(transcribed, None, live=context.services.live_call(stored.id))


async def send(checked: CheckedRequest[ChatMessageCreate, NoQuery]) -> ChatMessage:
    """Send the message and wait for the answer, before the transaction of POST /calls/{id}/messages."""
    stored = await checked.services.database.read(
        lambda conn: calls.get(conn, checked.owner, checked.item), owner=checked.owner
    )
    if stored is None:
        raise NotFound("Call not found")
    if not stored.is_chat:
        raise Conflict("The call is not a chat")
    reply = await checked.services.send_chat_message(stored.id, checked.body.content, checked.body.edit_turn)
    return ChatMessage.model_validate(reply.__dict__)


def answer(context: RequestContext[ChatMessageCreate, NoQuery]) -> ChatMessage:
    """POST /calls/{id}/messages"""
    message: ChatMessage = context.prepared
    return message


ROUTES = (
    Route(
        method="POST",
        path="/calls/chat",
        name="createChat",
        role="editor",
        tag="Calls",
        summary="Create a chat: a conversation without sound",
        description=(
            "The agent converses as in a telephone call, with its prompt, tools, documents and analysis, about "
            "messages that are typed: POST /calls/{id}/messages. The chat is stored as a call: its provider is chat, "
            "its metadata has test: true, and draft: true if `agent` was given. The response comes when the agent, if "
            "it speaks first, has said its first message, which is in `transcript`. Keys that the agent sends reach "
            "nobody, and a transfer calls nobody: the agent is told so. A chat costs nothing, sends no webhooks, and "
            "takes no place of a call: an organization has 20 at once, which 429 also means. It ends by POST "
            "/calls/{id}/hangup, when the agent ends it, and as customer_silent after 10 minutes without a message."
        ),
        prepare=open_chat,
        undo=end_chat,
        handler=create,
        uses_disk_reserve=True,
        body=ChatCreate,
        example={
            "agentId": "5b04ac7c-2be9-4887-97d5-5fafa43022f1",
            "contextVariables": {"caller": "the pilot station"},
            "agent": {"agentGreeting": "Harbour office, good morning!"},
        },
        response=DataResponse(Call),
        status=201,
        errors=(404,),
    ),
    Route(
        method="POST",
        path="/calls/{id}/messages",
        name="sendChatMessage",
        role="editor",
        tag="Calls",
        summary="Send a message in a chat, and get the agent's answer",
        description=(
            "Responds when the agent has answered. With `editTurn` the conversation goes on from an earlier turn of "
            "the user: that turn and all that came after it are dropped. 400 names editTurn if there is no such turn. "
            "409: the call is not a chat, it has ended, the agent still answers another message, or the chat has 200 "
            "turns. 503 also means that the answer takes longer than 50 seconds: the agent goes on, and the call's "
            "transcript will have it."
        ),
        prepare=send,
        handler=answer,
        uses_disk_reserve=True,
        body=ChatMessageCreate,
        example={"content": "Is there a berth free on Friday?", "editTurn": 1},
        item="Call",
        response=DataResponse(ChatMessage),
        status=201,
        errors=(409,),
    ),
)
