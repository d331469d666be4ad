"""Handler of `POST /calls/test`: a test call from a browser."""

from __future__ import annotations

from functools import partial
from typing import Any

from aiohttp import web

from api.auth.access_watch import ACCESS_WATCH
from api.auth.principal import PRINCIPAL
from api.resources.calls.calls import active_agent
from api.resources.links import request_origin
from api.routing.route import CheckedRequest, DataResponse, NoQuery, RequestContext, Route
from api.schemas.calls import Call, WebCallCreate, WebCallCreated
from calls.admission.rejection import RETRY_AFTER_S
from calls.web_call.web_calls import NewWebCall, new_ticket
from calls.webhooks import call_events
from config.errors import NotFound, Unavailable
from storage.accounts import organizations
from storage.agents import agents
from storage.calls import calls


async def check_models(checked: CheckedRequest[WebCallCreate, NoQuery]) -> None:
    """Raises `Unavailable` while no calls are admitted, before the transaction of POST /calls/test."""
    reason = checked.services.call_rejection_reason()
    if reason is not None:
        raise Unavailable(f"No calls are admitted now: {reason}", RETRY_AFTER_S)


def create(context: RequestContext[WebCallCreate, NoQuery]) -> WebCallCreated:
    """POST /calls/test"""
    body, conn, owner, services = context.body, context.conn, context.owner, context.services
    agent = active_agent(conn, owner, str(body.agent_id))
    if body.version is not None:
        found = agents.at_version(conn, agent, body.version)
        if found is None:
            raise NotFound("Agent version not found")
        agent = found
    organization = organizations.get(conn, owner)
    if organization is None:
        raise RuntimeError(f"the organization {owner} of an API key does not exist")
    services.check_call_capacity(conn, organization)
    stored = calls.create_web(
        conn,
        organization_id=owner,
        agent_id=agent.id,
        direction=body.direction,
        context_variables=body.context_variables,
        metadata=body.metadata,
        agent_version=agent.version,
        deliver_webhook=body.deliver_webhook,
    )
    new = NewWebCall(stored, agent, new_ticket(), body.telephone)
    if call_events.add_started(conn, stored, agent, stored.created_at):
        context.after_commit.append(services.webhook_queued)
    context.after_commit.append(partial(services.start_web_call, new))
    context.after_commit.append(partial(watch_ticket, context.request, new.ticket))
    return WebCallCreated(call=Call.of(stored, None), websocket_url=socket_url(context, stored.id, new.ticket))


def watch_ticket(request: web.Request, ticket: str) -> None:
    """What the ticket opens ends with the session or the key of the request."""
    request.app[ACCESS_WATCH].on_ticket(ticket, request[PRINCIPAL])


def socket_url(context: RequestContext[Any, Any], call_id: str, ticket: str) -> str:
    """Returns the URL of the WebSocket of a call, which the ticket opens once."""
    scheme, _, host = request_origin(context).partition("://")
    return f"{'wss' if scheme == 'https' else 'ws'}://{host}/v1/calls/{call_id}/socket?ticket={ticket}"


ROUTES = (
    Route(
        method="POST",
        path="/calls/test",
        page_path="/api/calls/test",
        name="createTestCall",
        role="editor",
        tag="Calls",
        summary="Create a test call from a browser",
        description=(
            "The call begins when a client opens websocketUrl, and runs as a telephone call does: with recording, "
            "tools, transfers and timeline. Its provider is web, its metadata has test: true. It counts against the "
            "maximum numbers of calls, costs nothing, and sends no webhooks unless deliverWebhook is true. A transfer "
            "calls its target from the target's phone number, else from the agent's oldest, and is no REFER; without "
            "such a number it gets 409. Without a connection within 60 seconds the call ends as no_answer. The "
            "WebSocket takes and sends binary frames of 20 ms of mono PCM, signed 16 bits, little-endian, at 16 kHz "
            "(640 bytes), and text frames of JSON. From the server: {type: state, state} (ringing, listening, "
            "thinking, speaking, tool, on_hold, transferring, ended), {type: transcript, role, content, final, turn}, "
            "{type: turn, ...as in the timeline}, {type: clear} (drop the audio that is not played yet: the caller has "
            "interrupted), {type: tool, id, turn, name, arguments, result, ok, startMs, endMs} twice: as a tool "
            "begins, with null for what is not known yet, and when it has ended; and, last, {type: ended, "
            "endedReason}. From the client: {type: dtmf, digits}, {type: played, ms} (the position in the received "
            "audio that is being played, from which the server logs the delay) and {type: hangup}. A closed "
            "connection ends the call as customer_ended; no frame for [sip] rtp_timeout_s as media_timeout. 429 also "
            "means that the organization has its maximum number of calls."
        ),
        prepare=check_models,
        handler=create,
        uses_disk_reserve=True,
        body=WebCallCreate,
        example={"agentId": "5b04ac7c-2be9-4887-97d5-5fafa43022f1", "telephone": True},
        response=DataResponse(WebCallCreated),
        status=201,
        errors=(404,),
    ),
)
