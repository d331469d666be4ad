"""`/calls/{id}/sip`"""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from aiohttp import web
from pydantic import Field

from api.routing.route import CheckedRequest, DataResponse, RequestContext, Route
from api.schemas.base import IdView, Instant, NoBody, Query, View
from calls.call_record.sip_ladder import draw
from config.errors import NotFound
from storage.calls import calls, sip_traces
from storage.calls.sip_traces import SipTrace, StoredSipMessage


class SipQuery(Query):
    """Query of a call's SIP trace."""

    format: Literal["json", "text"] = Field("json", description="text: the drawing alone, as text/plain")


class SipMessage(View):
    """A SIP message of the call."""

    at: Instant
    offset_ms: int = Field(description="Since the first message of the call, ms")
    direction: Literal["received", "sent"] = Field(description="As this server sees it")
    transport: str = Field(description="udp, tcp or tls")
    from_: str = Field(alias="from", description="Address and port that it came from")
    to: str = Field(description="Address and port that it went to")
    summary: str = Field(description="As in `INVITE sip:100@192.0.2.1` or `200 OK (INVITE)`")
    cseq: int
    sdp: bool = Field(description="Its body is SDP")
    retransmission: bool = Field(description="The same bytes had been sent, or received, before")
    text: str = Field(
        description="The whole message; passwords, digests, media keys and pressed keys are replaced by *, and bodies "
        "other than SDP are not shown"
    )

    @classmethod
    def of(cls, stored: StoredSipMessage) -> SipMessage:
        """The view of a stored message."""
        renamed = {"from": stored["source"], "to": stored["target"], "retransmission": stored["again"]}
        return cls.model_validate({**stored, **renamed})


class CallSipView(View):
    """The SIP trace of a call, oldest message first."""

    call_id: IdView
    messages: list[SipMessage] = Field(
        description="At most 200; empty when the call was never sent, or was before this server kept them"
    )
    left_out: int = Field(description="Messages that there was no room for, after the 20th")
    ladder: str = Field(description="The same as a drawing, 100 columns wide")


async def live_trace(checked: CheckedRequest[NoBody, SipQuery]) -> SipTrace | None:
    """Before the transaction: the trace of a live call, or of one that has just ended."""
    return await checked.services.sip_messages(checked.item)


def get(context: RequestContext[None, SipQuery]) -> CallSipView | web.Response:
    """GET /calls/{id}/sip"""
    call = calls.get(context.conn, context.owner, context.item)
    if call is None:
        raise NotFound("Call not found")
    view = sip_view(context.conn, call.id, context.prepared)
    return web.Response(text=view.ladder) if context.query.format == "text" else view


def sip_view(conn: sa.Connection, call_id: str, known: SipTrace | None) -> CallSipView:
    """The stored trace of a call, else the live one."""
    found = sip_traces.get(conn, call_id) or known or SipTrace(())
    messages = [SipMessage.of(each) for each in found.messages]
    return CallSipView(call_id=call_id, messages=messages, left_out=found.left_out, ladder=draw(found))


ROUTES = (
    Route(
        method="GET",
        path="/calls/{id}/sip",
        name="getCallSip",
        tag="Calls",
        summary="Get the SIP messages of a call",
        description="Why a call went as it did: every message to and from the peer with its time, without secrets, and "
        "the same as a drawing. A live call shows what there is so far; they are stored a second after its end.",
        prepare=live_trace,
        handler=get,
        query=SipQuery,
        item="Call",
        response=DataResponse(CallSipView, or_text=True),
    ),
)
