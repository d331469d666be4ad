"""Handlers of `/calls`: create, hang up, transfer, hold, list, get, recording, transcript."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from aiohttp import web

from api.http.range_requests import RangeFileResponse, streamed_range_response
from api.nodes.node_live_calls import NODE_LIVE_CALLS, NodeAnswers
from api.resources.calls.outbound_audit import audit_errors, audit_malformed, audit_rejection, new_dial_request
from api.resources.links import LINK_DESCRIPTION, call_link
from api.routing.route import (
    CheckedRequest,
    DataResponse,
    FileResponse,
    NoQuery,
    PageResponse,
    RequestContext,
    Route,
    ViewPage,
)
from api.schemas.base import NoBody
from api.schemas.calls import (
    Call,
    CallCreate,
    CallListItem,
    CallQuery,
    TransferCall,
    TransferRequest,
)
from api.schemas.transcripts import LinkQuery, Transcript, TranscriptQuery
from api.services import Services
from calls.call_record.transfer_calls import transfer_call_json, transfer_calls_json
from calls.live.live_call import LiveDetails
from calls.outbound import dial_audit, permissions
from config.clock import utc_now
from config.errors import Conflict, FieldProblem, Invalid, NotFound, Unavailable
from config.signed_links import recording_path
from storage.accounts import organizations
from storage.agents import agents
from storage.calls import call_list, calls, outbound_audit, pending_finalization
from storage.calls.transfers import Transfer
from storage.phone_numbers import phone_numbers

OLDER_THAN_ANSWER: Final = timedelta(seconds=2)
"""Age of a call that its node would have named in its answer."""
NO_ANSWERS: Final = NodeAnswers()


def create(context: RequestContext[CallCreate, NoQuery]) -> Call:
    """POST /calls. The order of the checks is part of the API's contract."""
    body, conn, owner, services = context.body, context.conn, context.owner, context.services
    found = phone_numbers.get(conn, owner, str(body.phone_number_id))
    dial_request = new_dial_request(context.http, owner, body.to, str(body.phone_number_id), found)
    with audit_errors(context, dial_request):
        agent = active_agent(conn, owner, str(body.agent_id))
        number = _existing_number(found)
    organization = organizations.get(conn, owner)
    if organization is None:
        raise RuntimeError(f"the organization {owner} of an API key does not exist")
    rejection = permissions.dial_rejection(
        conn, number, organization, body.to, services.check_call_capacity, services.settings.trunks.policy
    )
    if rejection is not None:
        context.after_rejection.append(partial(audit_rejection, dial_request=dial_request, rejection=rejection))
        raise rejection.error
    stored = calls.create_outbound(
        conn,
        organization_id=owner,
        agent_id=agent.id,
        agent_version=agent.version,
        phone_number_id=number.id,
        provider=number.provider,
        customer_number=body.to,
        context_variables=body.context_variables,
        metadata=body.metadata,
    )
    attempt = outbound_audit.record(conn, dial_request, "queued", call_id=stored.id)
    context.after_commit.extend((partial(dial_audit.log_attempt, attempt), services.call_queued))
    return Call.of(stored, None)


def active_agent(conn: sa.Connection, owner: str, agent_id: str) -> agents.Agent:
    """Returns an agent that may hold conversations. Raises `NotFound`, and `Invalid` if it is not active."""
    agent = agents.get(conn, owner, agent_id)
    if agent is None:
        raise NotFound("Agent not found")
    if not agent.is_active:
        raise Invalid([FieldProblem("agentId", "The agent is not active")])
    return agent


def _existing_number(number: phone_numbers.PhoneNumber | None) -> phone_numbers.PhoneNumber:
    if number is None:
        raise NotFound("Phone number not found")
    return number


async def hang_up_live(checked: CheckedRequest[NoBody, NoQuery]) -> None:
    """Hang up, and wait until the end of the call is stored, before the transaction of POST /calls/{id}/hangup."""
    owner, services = checked.owner, checked.services
    stored, pending_end = await services.database.read(
        lambda conn: (calls.get(conn, owner, checked.item), pending_finalization.of_call(conn, checked.item)),
        owner=owner,
    )
    if stored is None:
        raise NotFound("Call not found")
    if stored.ended_at is not None or pending_end is not None:
        raise Conflict("Call has already ended")
    await services.hangup(stored.id)


def hangup(context: RequestContext[NoBody, NoQuery]) -> Call:
    """POST /calls/{id}/hangup"""
    stored = _stored(context)
    pending_end = pending_finalization.of_call(context.conn, stored.id)
    if pending_end is not None:
        stored = pending_finalization.with_end(stored, pending_end)
    if stored.ended_at is None:
        raise Unavailable("The end of the call cannot be stored now", HANGUP_RETRY_AFTER_S)
    return view_of(context, stored)


async def ask_nodes(checked: CheckedRequest[None, CallQuery]) -> NodeAnswers:
    """What other nodes know of live calls, before the transaction of GET /calls."""
    request, filtered = checked.http, checked.query.status
    if request is None or NODE_LIVE_CALLS not in request.app or filtered in ("completed", "failed"):
        return NodeAnswers()
    return await request.app[NODE_LIVE_CALLS].of(checked.owner)


def page(context: RequestContext[None, CallQuery]) -> ViewPage:
    """GET /calls"""
    query, answers = context.query, context.prepared
    found = call_list.page(
        context.conn, context.owner, limit=query.limit, offset=query.offset, call_filter=query.filter()
    )
    views = (
        CallListItem.of_row(each, recording_url_of(context, each), live_details(context.services, each, answers))
        for each in found.items
    )
    return ViewPage(views, found.total)


def get(context: RequestContext[None, NoQuery]) -> Call:
    """GET /calls/{id}"""
    return view_of(context, _stored(context))


async def begin_transfer(checked: CheckedRequest[TransferRequest, NoQuery]) -> Transfer:
    """Begin the transfer, before the transaction of POST /calls/{id}/transfer. Returns it as stored."""
    stored = await checked.services.database.read(
        lambda conn: calls.get(conn, checked.owner, checked.item), owner=checked.owner
    )
    if stored is None:
        raise NotFound("Call not found")
    return await checked.services.transfer(stored.id, checked.body.order())


def transfer(context: RequestContext[TransferRequest, NoQuery]) -> TransferCall:
    """POST /calls/{id}/transfer"""
    begun: Transfer = context.prepared
    child = calls.get(context.conn, context.owner, begun.id)
    return TransferCall.model_validate(transfer_call_json(begun, child, partial(call_link, context)))


async def hold_live(checked: CheckedRequest[NoBody, NoQuery]) -> None:
    """Put the customer on hold, before the transaction of POST /calls/{id}/hold."""
    await _set_held(checked, True)


async def unhold_live(checked: CheckedRequest[NoBody, NoQuery]) -> None:
    """Resume the call, before the transaction of POST /calls/{id}/unhold."""
    await _set_held(checked, False)


async def _set_held(checked: CheckedRequest[NoBody, NoQuery], on: bool) -> None:
    stored = await checked.services.database.read(
        lambda conn: calls.get(conn, checked.owner, checked.item), owner=checked.owner
    )
    if stored is None:
        raise NotFound("Call not found")
    await checked.services.set_held(stored.id, on)


def held(context: RequestContext[NoBody, NoQuery]) -> Call:
    """POST /calls/{id}/hold and POST /calls/{id}/unhold"""
    return view_of(context, _stored(context))


def transcript(context: RequestContext[None, TranscriptQuery]) -> Transcript:
    """GET /calls/{id}/transcript. A link, which may be passed on, opens what its receiver was meant to see."""
    included = (context.query.include or "").split(",")
    with_tools = "tools" in included
    if with_tools and context.organization_id is None:
        raise Invalid([FieldProblem("include", "Requires the API key; a signed link opens the transcript alone")])
    return Transcript.of(_stored(context), with_tools=with_tools, with_words="words" in included)


async def open_recording(checked: CheckedRequest[None, LinkQuery]) -> web.StreamResponse | None:
    """The response from a store of recordings, before the transaction of GET /calls/{id}/recording; None without a
    store."""
    files = checked.services.recording_files
    if files.store is None:
        return None
    stored = await checked.services.database.read(partial(_call_of, checked), owner=checked.organization_id)
    found = await files.open(stored) if stored.recorded else None
    if found is None:
        raise NotFound("Recording not found")
    return await streamed_range_response(found.size, found.read, checked.request, "audio/wav")


def recording(context: RequestContext[None, LinkQuery]) -> web.StreamResponse:
    """GET /calls/{id}/recording"""
    from_store: web.StreamResponse | None = context.prepared
    if from_store is not None:
        return from_store
    stored = _stored(context)
    path = context.services.recording_files.path_of(stored)
    size = _size(path) if stored.recorded else None
    if size is None:
        raise NotFound("Recording not found")
    return RangeFileResponse(path, size, context.request, "audio/wav")


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _stored(context: RequestContext[Any, Any]) -> calls.Call:
    """The call whose id is in the path: of the key's organization, with a signed link of any organization."""
    return _call_of(context, context.conn)


def _call_of(checked: CheckedRequest[Any, Any], conn: sa.Connection) -> calls.Call:
    if checked.organization_id is None:
        stored = calls.get_by_id(conn, checked.item)
    else:
        stored = calls.get(conn, checked.owner, checked.item)
    if stored is None:
        raise NotFound("Call not found")
    return stored


def view_of(context: RequestContext[Any, Any], stored: calls.Call) -> Call:
    """Returns the complete view of a call, its transfers included."""
    transfer_calls = transfer_calls_json(context.conn, stored.id, partial(call_link, context))
    live = live_details(context.services, stored)
    return Call.of(stored, recording_url_of(context, stored), transfer_calls, live)


def live_details(services: Services, stored: calls.CallRow, answers: NodeAnswers = NO_ANSWERS) -> LiveDetails | None:
    """Returns what is known of a call that has not ended; of another node's, what that has answered, else what is
    stored. Any thread."""
    if stored.ended_at is not None:
        return None
    own = services.node
    if own is None or stored.node in (None, own.name):
        return services.live_call(stored.id)
    known, now = answers.calls.get(stored.id), utc_now()
    is_ending = stored.node in answers.nodes and now - stored.created_at > OLDER_THAN_ANSWER
    if known is not None or is_ending or stored.status != "in_progress":
        return known
    return LiveDetails("listening", round((now - (stored.started_at or stored.created_at)).total_seconds()))


def recording_url_of(context: RequestContext[Any, Any], stored: calls.CallRow) -> str | None:
    """Returns the absolute URL of a call's recording; None without a recording. See `call_link`."""
    return call_link(context, recording_path(stored.id)) if stored.recorded else None


HANGUP_RETRY_AFTER_S: Final = 5
"""Retry-After, in seconds, if the end of a call could not be stored."""
ROUTES = (
    Route(
        method="POST",
        path="/calls",
        name="createCall",
        role="editor",
        tag="Calls",
        summary="Create an outbound call",
        description=(
            "The call is queued, and placed as soon as the server's pacing allows; its status shows the progress. It "
            "fails as unreachable if the number has no trunk, or one whose host cannot be resolved. 400 names agentId "
            "if the agent is not active, and `to` if it begins with no permitted prefix of the organization or of the "
            "number. 403 names phoneNumberId if the operator has not granted the number's trunk to the organization, "
            "or has revoked the grant. 429 also means that the organization has its maximum number of calls (queued, "
            "inbound and outbound), or that the organization or the number has made its maximum of calls in the last "
            "60 seconds; Retry-After says when to try again. "
            "The server's audit log has every request with a destination, accepted or rejected, except those over the "
            "rate limit of the key. A queued call is dialled with the settings that its number has at that time; if "
            "the number, the agent or the API key has been deleted by then, or the prefixes do not permit the "
            "destination any more, it fails as unreachable."
        ),
        handler=create,
        audit_malformed=audit_malformed,
        uses_disk_reserve=True,
        body=CallCreate,
        example={
            "agentId": "5b04ac7c-2be9-4887-97d5-5fafa43022f1",
            "phoneNumberId": "d8d7fcbb-1168-4616-9407-67f0a036d692",
            "to": "+4940654321",
            "contextVariables": {"caller": "the pilot station"},
            "metadata": {"ticket": 17},
        },
        response=DataResponse(Call),
        status=201,
        errors=(402, 403, 404),
    ),
    Route(
        method="POST",
        path="/calls/{id}/hangup",
        name="hangUpCall",
        role="editor",
        tag="Calls",
        summary="Hang up a call that is queued, ringing or in progress",
        description=(
            "Responds when the end of the call is stored; 409 if the call has ended before. If the summary or the "
            "extraction takes longer, the response has the end of the call, but GET /calls has the status in_progress "
            "until they are ready."
        ),
        prepare=hang_up_live,
        handler=hangup,
        uses_disk_reserve=True,
        body=NoBody,
        item="Call",
        response=DataResponse(Call),
        errors=(409,),
    ),
    Route(
        method="POST",
        path="/calls/{id}/transfer",
        name="transferCall",
        role="editor",
        tag="Calls",
        summary="Transfer a call in progress to a target of its agent",
        description=(
            "Responds with 201 as soon as the transfer has begun; GET /calls/{id} shows its progress as the last of "
            "transferCalls. While the target is called, the customer hears hold music; if the target does not take "
            "the call, the customer is back with the agent. 400 names `target` if the agent's transferTargets have no "
            "target of this name. 409: the call is not in progress, or a transfer of it is under way. 429 also means "
            "that there is no place for the second leg, because the organization has its maximum number of calls, or "
            "that the organization or the number has made its maximum of calls in the last 60 seconds."
        ),
        prepare=begin_transfer,
        handler=transfer,
        uses_disk_reserve=True,
        body=TransferRequest,
        example={
            "target": "Sales",
            "reason": "The caller wants to speak to a person",
            "summary": "Wants a berth for a yacht of 12 metres, from Friday to Sunday",
        },
        item="Call",
        response=DataResponse(TransferCall),
        status=201,
        errors=(402, 403, 409),
    ),
    Route(
        method="POST",
        path="/calls/{id}/hold",
        name="holdCall",
        role="editor",
        tag="Calls",
        summary="Put the customer of a call in progress on hold",
        description=(
            "The customer hears the agent's hold music until POST /calls/{id}/unhold. Meanwhile nothing that the "
            "customer says or dials reaches the agent or the target of a transfer, and the agent's speech waits where "
            "it was. The call goes on: maxCallDurationSeconds counts, customerSilenceMs and the RTP timeout do not. A "
            "transfer may be begun and connected meanwhile. No SIP message is sent; a hold by the customer's phone "
            "counts besides. Has no effect on a call that is held. 409: the call is not in progress."
        ),
        prepare=hold_live,
        handler=held,
        uses_disk_reserve=True,
        body=NoBody,
        item="Call",
        response=DataResponse(Call),
        errors=(409,),
    ),
    Route(
        method="POST",
        path="/calls/{id}/unhold",
        name="unholdCall",
        role="editor",
        tag="Calls",
        summary="Resume a call that was put on hold",
        description=(
            "The agent goes on with what it was saying. Has no effect on a call that is not held. 409: the call is not "
            "in progress."
        ),
        prepare=unhold_live,
        handler=held,
        uses_disk_reserve=True,
        body=NoBody,
        item="Call",
        response=DataResponse(Call),
        errors=(409,),
    ),
    Route(
        method="GET",
        path="/calls",
        name="listCalls",
        role="viewer",
        tag="Calls",
        summary="List calls, newest first",
        prepare=ask_nodes,
        handler=page,
        query=CallQuery,
        response=PageResponse(CallListItem),
    ),
    Route(
        method="GET",
        path="/calls/{id}",
        name="getCall",
        role="viewer",
        tag="Calls",
        summary="Get a call with its transcript and analysis",
        handler=get,
        item="Call",
        response=DataResponse(Call),
    ),
    Route(
        method="GET",
        path="/calls/{id}/recording",
        name="getCallRecording",
        role="viewer",
        tag="Calls",
        summary="Get a call's recording: caller on the left channel, agent on the right",
        description=f"{LINK_DESCRIPTION} 503: the recording is in a store that cannot be reached.",
        prepare=open_recording,
        handler=recording,
        query=LinkQuery,
        item="Call",
        access="link",
        response=FileResponse("audio/wav"),
    ),
    Route(
        method="GET",
        path="/calls/{id}/transcript",
        name="getCallTranscript",
        role="viewer",
        tag="Calls",
        summary="Get a call's transcript",
        description=f"{LINK_DESCRIPTION} A live call has the items so far.",
        handler=transcript,
        query=TranscriptQuery,
        item="Call",
        access="link",
        response=DataResponse(Transcript),
    ),
)
