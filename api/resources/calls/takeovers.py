"""Handler of `/calls/{id}/takeover`: a person takes a live call over from its agent."""

from __future__ import annotations

from api.resources.accounts.author import author_of
from api.resources.calls.calls import view_of
from api.resources.calls.web_calls import socket_url, watch_ticket
from api.routing.route import CheckedRequest, DataResponse, NoQuery, RequestContext, Route
from api.schemas.base import NoBody
from api.schemas.calls import WebCallCreated
from config.errors import NotFound
from storage.calls import calls


async def offer(checked: CheckedRequest[NoBody, NoQuery]) -> str:
    """Before the transaction of POST /calls/{id}/takeover. Returns the ticket."""
    owner, services = checked.owner, checked.services
    stored = await services.database.read(lambda conn: calls.get(conn, owner, checked.item), owner=owner)
    if stored is None:
        raise NotFound("Call not found")
    ticket = services.offer_takeover(stored.id, author_of(checked))
    watch_ticket(checked.request, ticket)
    return ticket


def take_over(context: RequestContext[NoBody, NoQuery]) -> WebCallCreated:
    """POST /calls/{id}/takeover"""
    stored = calls.get(context.conn, context.owner, context.item)
    if stored is None:
        raise NotFound("Call not found")
    url = socket_url(context, stored.id, context.prepared)
    return WebCallCreated(call=view_of(context, stored), websocket_url=url)


ROUTES = (
    Route(
        method="POST",
        path="/calls/{id}/takeover",
        name="takeOverCall",
        action="takeover",
        role="editor",
        tag="Calls",
        summary="Take a call in progress over from its agent",
        description=(
            "The agent talks on until a client opens websocketUrl, within 60 seconds; then the agent is silent for the "
            "rest of the call, and the client is connected with the customer. The WebSocket is that of a test call "
            "(POST /calls/test): binary frames of 20 ms of mono PCM both ways, {type: dtmf, digits} and {type: hangup} "
            "from the client, and {type: ended, endedReason} at the end. A transfer that is under way is cancelled. "
            "The recording goes on unless recordAfterTransfer is false; what is said is transcribed if stayOnCall is "
            "true, with the speaker target for the person. When the client leaves, the call ends as agent_ended; "
            "without frames for [sip] rtp_timeout_s as media_timeout. The timeline and the audit log have the name of "
            "the API key or of the user. 409: the call is not in progress, or not with the agent any more."
        ),
        prepare=offer,
        handler=take_over,
        uses_disk_reserve=True,
        body=NoBody,
        item="Call",
        response=DataResponse(WebCallCreated),
        status=201,
        errors=(409,),
    ),
)
