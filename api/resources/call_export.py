"""`/calls/{id}/export` and DELETE `/calls/{id}`: what is kept of a call, to be handed over or to be gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from pydantic import BaseModel, TypeAdapter

from api.http.zip_stream import Member, ZipStream
from api.resources.call_sip_trace import look, sip_view
from api.resources.call_timeline import timeline_view
from api.resources.calls import recording_url_of
from api.resources.webhook_deliveries import WebhookAttempt
from api.routing.route import Deleted, Exchange, File, NoQuery, Route
from api.schemas.calls import Call, Transcript
from config.clock import iso, utc_now
from config.errors import NotFound
from storage.accounts import idempotency
from storage.accounts.idempotency import Answer
from storage.calls import calls, recordings, retention
from storage.webhooks import deliveries

MOST_ATTEMPTS: Final = 1000
GONE: Final = Answer(404, b'{"error":"Call not found"}')
"""To a repetition of the POST that has placed a call which is deleted by now."""
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


def delete(exchange: Exchange[None, NoQuery]) -> None:
    """DELETE /calls/{id}. The request that has placed it is not answered with it again, nor does it place another."""
    conn, owner = exchange.conn, exchange.owner
    call = calls.get(conn, owner, exchange.item)
    retention.remove_call(conn, owner, exchange.item)
    if call is not None and call.created_at > utc_now() - idempotency.KEPT:
        route, made = (owner, "/v1/calls"), (call.id, call.created_at)
        idempotency.replace_those_about(conn, exchange.services.secrets, route, made, GONE)
    exchange.after_commit.append(exchange.services.calls_removed)


def export(exchange: Exchange[None, NoQuery]) -> ZipStream:
    """GET /calls/{id}/export. Recordings are opened here, within the moment that the database is seen at: should they
    be removed before they are sent, they are sent all the same."""
    call = calls.get(exchange.conn, exchange.owner, exchange.item)
    if call is None:
        raise NotFound("Call not found")
    at = utc_now()
    members = [Member.of("README.txt", README.format(id=call.id, at=iso(at)).encode()), *_members(exchange, call)]
    for child in calls.transfers_of(exchange.conn, call.id):
        members += _members(exchange, child, f"transfers/{child.id}/")
    return ZipStream(f"call-{call.id}.zip", members, at)


def _members(exchange: Exchange[Any, Any], call: calls.Call, folder: str = "") -> Iterable[Member]:
    """All that is kept of one call. Of the SIP messages of a live one, those that are known by now."""
    conn = exchange.conn
    transcript = Transcript.model_validate({"call_id": call.id, "status": call.status, "transcript": call.transcript})
    sip = sip_view(conn, call.id, None if folder else exchange.prepared)
    said = "".join(f"{item['role']}: {item['content']}\n" for item in call.transcript)
    shown: dict[str, BaseModel] = {
        "call.json": Call.of(call, recording_url_of(exchange, call)),
        "transcript.json": transcript,
        "timeline.json": timeline_view(call),
        "sip.json": sip,
    }
    yield from (Member.of(f"{folder}{name}", _json(view)) for name, view in shown.items())
    yield Member.of(f"{folder}transcript.txt", said.encode())
    yield from _webhook(conn, call, folder)
    yield from _recording(exchange, call, folder)


def _webhook(conn: sa.Connection, call: calls.Call, folder: str) -> Iterable[Member]:
    event = deliveries.of_call(conn, call.id)
    if event is None:
        return
    attempts = deliveries.page(conn, call.id, limit=MOST_ATTEMPTS, offset=0).items
    views = [WebhookAttempt.model_validate(each) for each in attempts]
    yield Member.of(f"{folder}webhook/body.json", event.body)
    yield Member.of(f"{folder}webhook/attempts.json", _ATTEMPTS.dump_json(views, by_alias=True, indent=2))


def _recording(exchange: Exchange[Any, Any], call: calls.Call, folder: str) -> Iterable[Member]:
    path = recordings.path_of(exchange.services.settings.data_dir, call.id, call.created_at)
    if not call.recorded:
        return
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    yield Member(f"{folder}recording.wav", file, path.stat().st_size)


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
        answer=Deleted(),
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
        prepare=look,
        handler=export,
        item="Call",
        answer=File("application/zip", ranges=False),
    ),
)
