"""`/calls/{id}/export` and DELETE `/calls/{id}`: everything that is stored of a call, as an archive or to be
deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from pydantic import BaseModel, TypeAdapter

from api.http.zip_stream import ZipMember, ZipStreamResponse
from api.resources.call_sip_trace import live_trace, sip_view
from api.resources.call_timeline import timeline_view
from api.resources.calls import recording_url_of
from api.resources.webhook_deliveries import WebhookAttempt
from api.routing.route import DeletedResponse, FileResponse, NoQuery, RequestContext, Route
from api.schemas.calls import Call, Transcript
from config.clock import iso, utc_now
from config.errors import NotFound
from storage.accounts import idempotency
from storage.accounts.idempotency import StoredResponse
from storage.calls import calls, deletion, recordings
from storage.webhooks import deliveries

MAX_ATTEMPTS: Final = 1000
CALL_DELETED: Final = StoredResponse(404, b'{"error":"Call not found"}')
"""The response to a repetition of the POST whose call has been deleted since."""
README: Final = """\
What this server keeps of the call {id}
as of {at}

call.json                 the call, as GET /calls/{{id}} shows it
transcript.txt, .json     what was said and heard
timeline.json             when each turn began and ended
sip.json                  the SIP messages of the call, without secrets
recording.wav             the sound: the caller left, the agent right
webhook/body.json         what was, or will be, sent to the webhook: these very bytes
webhook/attempts.json     every sending of it, and what was answered
transfers/<id>/           the same of each call that this one was handed on to

What is not here is not kept: there was none, or it has been removed since.
Times are UTC. The archive was made from one moment of the database.
"""


def delete(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /calls/{id}. A repetition of the POST that created the call gets 404 from now on, and creates no other
    call."""
    conn, owner = context.conn, context.owner
    call = calls.get(conn, owner, context.item)
    deletion.delete_call(conn, owner, context.item)
    if call is not None and call.created_at > utc_now() - idempotency.LIFETIME:
        route, made = (owner, "/v1/calls"), (call.id, call.created_at)
        idempotency.replace_responses_showing(conn, context.services.secrets, route, made, CALL_DELETED)
    context.after_commit.append(context.services.calls_removed)


def export(context: RequestContext[None, NoQuery]) -> ZipStreamResponse:
    """GET /calls/{id}/export. Recordings are opened here, within the transaction: one that is removed before it is sent
    is sent all the same."""
    call = calls.get(context.conn, context.owner, context.item)
    if call is None:
        raise NotFound("Call not found")
    at = utc_now()
    members = [
        ZipMember.from_bytes("README.txt", README.format(id=call.id, at=iso(at)).encode()),
        *_members(context, call),
    ]
    for child in calls.transfers_of(context.conn, call.id):
        members += _members(context, child, f"transfers/{child.id}/")
    return ZipStreamResponse(f"call-{call.id}.zip", members, at)


def _members(context: RequestContext[Any, Any], call: calls.Call, folder: str = "") -> Iterable[ZipMember]:
    """Everything that is stored of one call. Of the SIP messages of a live call, those received so far."""
    conn = context.conn
    transcript = Transcript.model_validate({"call_id": call.id, "status": call.status, "transcript": call.transcript})
    sip = sip_view(conn, call.id, None if folder else context.prepared)
    said = "".join(f"{item['role']}: {item['content']}\n" for item in call.transcript)
    shown: dict[str, BaseModel] = {
        "call.json": Call.of(call, recording_url_of(context, call)),
        "transcript.json": transcript,
        "timeline.json": timeline_view(call),
        "sip.json": sip,
    }
    yield from (ZipMember.from_bytes(f"{folder}{name}", _json(view)) for name, view in shown.items())
    yield ZipMember.from_bytes(f"{folder}transcript.txt", said.encode())
    yield from _webhook(conn, call, folder)
    yield from _recording(context, call, folder)


def _webhook(conn: sa.Connection, call: calls.Call, folder: str) -> Iterable[ZipMember]:
    event = deliveries.delivery_of_call(conn, call.id)
    if event is None:
        return
    attempts = deliveries.page(conn, call.id, limit=MAX_ATTEMPTS, offset=0).items
    views = [WebhookAttempt.model_validate(each) for each in attempts]
    yield ZipMember.from_bytes(f"{folder}webhook/body.json", event.body)
    yield ZipMember.from_bytes(f"{folder}webhook/attempts.json", _ATTEMPTS.dump_json(views, by_alias=True, indent=2))


def _recording(context: RequestContext[Any, Any], call: calls.Call, folder: str) -> Iterable[ZipMember]:
    path = recordings.path_of(context.services.settings.data_dir, call.id, call.created_at)
    if not call.recorded:
        return
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    yield ZipMember(f"{folder}recording.wav", file, path.stat().st_size)


def _json(view: BaseModel) -> bytes:
    return view.model_dump_json(by_alias=True, indent=2).encode()


_ATTEMPTS: Final = TypeAdapter(Sequence[WebhookAttempt])
ROUTES: Final = (
    Route(
        method="DELETE",
        path="/calls/{id}",
        name="deleteCall",
        tag="Calls",
        summary="Delete a call and everything that is kept of it",
        description="Its talk, recording, SIP messages and webhook go, what is still to be sent of that included, and "
        "so do the calls that it was handed on to. The recording's file is gone a moment later. The audit log keeps "
        "that somebody was called, with the first digits of the number. A repetition of the POST that has placed it "
        "(`Idempotency-Key`) is answered with 404. 409 while the call has not ended.",
        handler=delete,
        item="Call",
        response=DeletedResponse(),
        errors=(409,),
    ),
    Route(
        method="GET",
        path="/calls/{id}/export",
        name="exportCall",
        tag="Calls",
        summary="Get everything that is kept of a call, as a zip archive",
        description="The call, its transcript, timeline, SIP messages, recording and webhook, and the same of the "
        "calls that it was handed on to; README.txt in it says what is what. All of one moment. A live call shows what "
        "is stored so far.",
        prepare=live_trace,
        handler=export,
        item="Call",
        response=FileResponse("application/zip", ranges=False),
    ),
)
