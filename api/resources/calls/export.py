"""Handlers of GET `/calls/{id}/export` and DELETE `/calls/{id}`: export and deletion of all data of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sqlalchemy as sa
from pydantic import BaseModel, TypeAdapter

from api.http.zip_stream import ZipMember, ZipStreamResponse
from api.resources.calls.calls import view_of
from api.resources.calls.sip_trace import live_trace, may_see_messages, sip_view, stored_or_live
from api.resources.calls.timeline import timeline_view
from api.resources.webhook_deliveries import WebhookAttempt, attempt_view
from api.routing.route import CheckedRequest, DeletedResponse, FileResponse, NoQuery, RequestContext, Route
from api.schemas.transcripts import Transcript
from config.clock import iso, utc_now
from config.errors import NotFound
from storage.accounts import idempotency
from storage.accounts.idempotency import StoredResponse
from storage.calls import calls, deletion, transfers
from storage.calls.sip_traces import SipTrace
from storage.recording_store.blocking_reader import blocking_reader
from storage.webhooks import deliveries

MAX_ATTEMPTS: Final = 1000
CALL_DELETED: Final = StoredResponse(404, b'{"error":"Call not found"}')
"""The response to a repetition, by its `Idempotency-Key`, of the POST whose call has been deleted."""
README: Final = """\
All data that this server stores of the call {id}
as of {at}

call.json                 the call, as GET /calls/{{id}} returns it
transcript.txt, .json     the transcript; in .json with the tool calls
timeline.json             the times of each turn
sip.json                  the SIP messages of the call, without secrets
recording.wav             the recording: caller left, agent right
webhook/body.json         the body of the call.completed webhook, sent or still to be sent, byte for byte
webhook/events/*.json     the bodies of the call's other events, by their ids
webhook/attempts.json     each attempt at sending any of them, with the receiver's response
transfers/<id>/           the same files of each call that this one was transferred to

A file that is missing here has never existed, or has been deleted.
Times are UTC. All files show the database at the same moment.
"""


def delete(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /calls/{id}. A repetition, by its `Idempotency-Key`, of the POST that created the call gets 404 from now
    on, and creates no call."""
    conn, owner = context.conn, context.owner
    call = calls.get(conn, owner, context.item)
    deletion.delete_call(conn, owner, context.item)
    if call is not None and call.created_at > utc_now() - idempotency.LIFETIME:
        route, created = (owner, "/v1/calls"), (call.id, call.created_at)
        idempotency.replace_responses_showing(conn, context.services.secrets, route, created, CALL_DELETED)
    context.after_commit.append(context.services.calls_deleted)


@dataclass(frozen=True)
class _Prepared:
    """What is not in the database: the SIP messages of a live call, and recordings, by call, if they are in a store."""

    trace: SipTrace | None
    recordings: Mapping[str, ZipMember] = field(default_factory=dict)


async def prepare_export(checked: CheckedRequest[Any, Any]) -> _Prepared:
    """Open what is not in the database, before the transaction of GET /calls/{id}/export."""
    trace, files = await live_trace(checked), checked.services.recording_files
    if files.store is None:
        return _Prepared(trace)

    def read(conn: sa.Connection) -> list[calls.Call]:
        call = calls.get(conn, checked.owner, checked.item)
        return [] if call is None else [call, *calls.transfers_of(conn, call.id)]

    found = {}
    for call in await checked.services.database.read(read, owner=checked.owner):
        opened = await files.open(call) if call.recorded else None
        if opened is not None:
            found[call.id] = ZipMember("recording.wav", blocking_reader(opened), opened.size)
    return _Prepared(trace, found)


def export(context: RequestContext[None, NoQuery]) -> ZipStreamResponse:
    """GET /calls/{id}/export. Recordings are opened here, within the transaction, so that one that is deleted before it
    is sent can still be sent."""
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
    """All data of one call; for a live call, the SIP messages so far."""
    conn = context.conn
    sip = sip_view(
        call.id,
        stored_or_live(conn, call.id, None if folder else context.prepared.trace),
        full=may_see_messages(context),
    )
    transcript_text = "".join(f"{item.get('speaker', item['role'])}: {item['content']}\n" for item in call.transcript)
    views: dict[str, BaseModel] = {
        "call.json": view_of(context, call),
        "transcript.json": Transcript.of(call, with_tools=True, with_words=True),
        "timeline.json": timeline_view(call, transfers.of_call(conn, call.id)),
        "sip.json": sip,
    }
    yield from (ZipMember.from_bytes(f"{folder}{name}", _json(view)) for name, view in views.items())
    yield ZipMember.from_bytes(f"{folder}transcript.txt", transcript_text.encode())
    yield from _webhook(conn, call, folder)
    yield from _recording(context, call, folder)


def _webhook(conn: sa.Connection, call: calls.Call, folder: str) -> Iterable[ZipMember]:
    events = deliveries.of_call(conn, call.id)
    if not events:
        return
    completed = deliveries.delivery_of_call(conn, call.id)
    attempts = deliveries.page(conn, call.id, limit=MAX_ATTEMPTS, offset=0).items
    views = [attempt_view(each.attempt, each.delivery) for each in attempts]
    for event in events:
        name = "body" if event == completed else f"events/{event.id}"
        yield ZipMember.from_bytes(f"{folder}webhook/{name}.json", event.body)
    yield ZipMember.from_bytes(f"{folder}webhook/attempts.json", _ATTEMPTS.dump_json(views, by_alias=True, indent=2))


def _recording(context: RequestContext[Any, Any], call: calls.Call, folder: str) -> Iterable[ZipMember]:
    files, prepared = context.services.recording_files, context.prepared
    if files.store is not None and call.id in prepared.recordings:
        yield replace(prepared.recordings[call.id], name=f"{folder}recording.wav")
    if files.store is not None or not call.recorded:
        return
    path = files.path_of(call)
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
        role="owner",
        tag="Calls",
        summary="Delete a call and all data of it",
        description="Deletes its transcript, recording, SIP messages and webhook, also a webhook that has not been "
        "sent yet, and the calls that it was transferred to. The recording's file is removed a moment later. The audit "
        "log keeps the call, with the first digits of the number. A repetition of the POST that created the call "
        "(`Idempotency-Key`) gets 404. 409 while the call has not ended.",
        handler=delete,
        item="Call",
        response=DeletedResponse(),
        errors=(409,),
    ),
    Route(
        method="GET",
        path="/calls/{id}/export",
        name="exportCall",
        role="owner",
        tag="Calls",
        summary="Get all data of a call, as a zip archive",
        description="The call, its transcript, timeline, SIP messages, recording and webhook, and the same of the "
        "calls that it was transferred to; README.txt in the archive describes the files. All files show the state "
        "at the same moment; those of a live call have the data so far.",
        prepare=prepare_export,
        handler=export,
        item="Call",
        response=FileResponse("application/zip", ranges=False),
    ),
)
