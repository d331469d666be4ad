"""`/calls`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import web

from api.call_models import Call, CallListItem, CallQuery, LinkQuery, Transcript
from api.route import Exchange, File, Listed, Many, NoQuery, One, Route
from config.clock import utc_now
from config.errors import FieldProblem, Invalid, NotFound
from config.links import recording_path, signed_url
from storage import calls, recordings


def page(exchange: Exchange[None, CallQuery]) -> Listed:
    """GET /calls"""
    query = exchange.query
    found = calls.page(exchange.conn, exchange.owner, limit=query.limit, offset=query.offset, only=query.filter())
    return Listed([CallListItem.of_row(each, _recording_url(exchange, each)) for each in found.items], found.total)


def get(exchange: Exchange[None, NoQuery]) -> Call:
    """GET /calls/{id}"""
    stored = _stored(exchange)
    return Call.of(stored, _recording_url(exchange, stored))


def transcript(exchange: Exchange[None, LinkQuery]) -> Transcript:
    """GET /calls/{id}/transcript"""
    stored = _stored(exchange)
    return Transcript.model_validate({"call_id": stored.id, "status": stored.status, "transcript": stored.transcript})


def recording(exchange: Exchange[None, LinkQuery]) -> web.StreamResponse:
    """GET /calls/{id}/recording; aiohttp answers the ranges."""
    stored = _stored(exchange)
    path = recordings.path_of(exchange.services.settings.data_dir, stored.id, stored.created_at)
    size = _size(path) if stored.recorded else None
    if size is None:
        raise NotFound("Recording not found")
    _refuse_unsatisfiable(exchange.request, size)
    return web.FileResponse(path, headers={"Content-Type": "audio/wav", "Accept-Ranges": "bytes"})


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _refuse_unsatisfiable(request: web.Request, size: int) -> None:
    """416 with the error body for a range that is malformed or begins behind the end."""
    try:
        start = request.http_range.start
    except ValueError:
        start = size
    if start is not None and start >= size:
        raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})


def _stored(exchange: Exchange[None, Any]) -> calls.Call:
    """The call of the path; with a signed link, of whatever organization."""
    if exchange.organization_id is None:
        stored = calls.get_anywhere(exchange.conn, exchange.item)
    else:
        stored = calls.get(exchange.conn, exchange.owner, exchange.item)
    if stored is None:
        raise NotFound("Call not found")
    return stored


def _recording_url(exchange: Exchange[None, Any], stored: calls.CallRow) -> str | None:
    """Absolute and signed; at the address that the client used unless the settings name one."""
    if not stored.recorded:
        return None
    services = exchange.services
    origin = services.settings.api.public_url or _origin_of(exchange.request)
    return signed_url(services.secrets, origin, recording_path(stored.id), utc_now())


def _origin_of(request: web.Request) -> str:
    """The origin that the client named in its Host header."""
    try:
        return str(request.url.origin())
    except ValueError as error:
        raise Invalid([FieldProblem("Host", "Must be host or host:port")]) from error


LINK_DESCRIPTION = "Opens with the API key, or with the expiry and signature of the link that the server gave out."
ROUTES = (
    Route(
        method="GET",
        path="/calls",
        name="listCalls",
        tag="Calls",
        summary="List calls, newest first",
        handler=page,
        query=CallQuery,
        answer=Many(CallListItem),
    ),
    Route(
        method="GET",
        path="/calls/{id}",
        name="getCall",
        tag="Calls",
        summary="Get a call with its transcript and analysis",
        handler=get,
        item="Call",
        answer=One(Call),
    ),
    Route(
        method="GET",
        path="/calls/{id}/recording",
        name="getCallRecording",
        tag="Calls",
        summary="Get a call's recording: caller left, agent right",
        description=LINK_DESCRIPTION,
        handler=recording,
        query=LinkQuery,
        item="Call",
        access="link",
        answer=File("audio/wav"),
    ),
    Route(
        method="GET",
        path="/calls/{id}/transcript",
        name="getCallTranscript",
        tag="Calls",
        summary="Get a call's transcript",
        description=LINK_DESCRIPTION,
        handler=transcript,
        query=LinkQuery,
        item="Call",
        access="link",
        answer=One(Transcript),
    ),
)
