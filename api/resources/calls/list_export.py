"""Handler of GET `/calls/export`: a list of calls for spreadsheets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from api.http.csv_text import csv_text
from api.routing.route import FileResponse, RequestContext, Route
from api.schemas.calls import CallFilterQuery
from config.clock import iso
from storage.agents import agents
from storage.calls import call_list
from storage.calls.calls import CallRow

MAX_ROWS: Final = 10_000
COLUMNS: Final = (
    *("id", "createdAt", "startedAt", "endedAt", "direction", "status", "endedReason", "customerNumber"),
    *("calledNumber", "agentId", "agentName", "agentVersion", "phoneNumberId", "durationSeconds", "turnCount"),
    *("cost", "test", "metadata"),
)


def export(context: RequestContext[None, CallFilterQuery]) -> web.Response:
    """GET /calls/export"""
    found = call_list.page(context.conn, context.owner, limit=MAX_ROWS, offset=0, call_filter=context.query.filter())
    names = agents.names(context.conn, context.owner)
    text = csv_text(COLUMNS, (_row(call, names) for call in found.items))
    return web.Response(
        body=text.encode(),
        content_type="text/csv",
        charset="utf-8",
        headers={"Content-Disposition": 'attachment; filename="calls.csv"'},
    )


def _row(call: CallRow, names: Mapping[str, str]) -> tuple[str, ...]:
    """The call's cells, in the order of `COLUMNS`."""
    return (
        call.id,
        iso(call.created_at),
        "" if call.started_at is None else iso(call.started_at),
        "" if call.ended_at is None else iso(call.ended_at),
        call.direction,
        call.status,
        call.ended_reason or "",
        call.customer_number,
        call.called_number or "",
        call.agent_id or "",
        names.get(call.agent_id or "", ""),
        _number(call.agent_version),
        call.phone_number_id or "",
        _number(call.duration_seconds),
        str(call.turn_count),
        _number(call.cost),
        "true" if call.test else "false",
        json.dumps(call.metadata, ensure_ascii=False) if call.metadata else "",
    )


def _number(value: float | None) -> str:
    return "" if value is None else str(value)


ROUTES = (
    Route(
        method="GET",
        path="/calls/export",
        name="exportCalls",
        role="owner",
        tag="Calls",
        summary="Get a list of calls as CSV, newest first",
        description=f"For spreadsheets: UTF-8, with a header. At most {MAX_ROWS} calls; `to` and `from` divide longer "
        "lists. A text that a spreadsheet could take for a formula stands behind an apostrophe.",
        handler=export,
        query=CallFilterQuery,
        response=FileResponse("text/csv", ranges=False),
    ),
)
