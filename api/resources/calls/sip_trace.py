"""Handler and views of `/calls/{id}/sip`."""

from __future__ import annotations

from typing import Any, Literal

import sqlalchemy as sa
from aiohttp import web
from pydantic import Field

from api.auth.principal import PRINCIPAL
from api.routing.route import CheckedRequest, DataResponse, RequestContext, Route
from api.schemas.base import IdView, Instant, NoBody, Query, View
from calls.call_record.sip_ladder import draw
from calls.call_record.sip_pcap import MEDIA_TYPE as PCAP
from calls.call_record.sip_pcap import pcap
from config.errors import Forbidden, NotFound
from storage.calls import calls, sip_traces
from storage.calls.sip_traces import SipTrace, StoredSipMessage


class SipQuery(Query):
    """Query parameters of the SIP trace of a call."""

    format: Literal["json", "text", "pcap"] = Field(
        "json",
        description="text: only the ladder diagram, as text/plain; pcap: a capture file for Wireshark or sngrep",
    )


class SipMessage(View):
    """A SIP message of the call."""

    at: Instant
    offset_ms: int = Field(description="Time since the first message of the call, ms")
    direction: Literal["received", "sent"] = Field(description="Received or sent by this server")
    transport: str = Field(description="udp, tcp or tls")
    from_: str = Field(alias="from", description="Source address and port")
    to: str = Field(description="Destination address and port")
    summary: str = Field(description="Such as `INVITE sip:100@192.0.2.1` or `200 OK (INVITE)`")
    cseq: int
    sdp: bool = Field(description="True if the body is SDP")
    retransmission: bool = Field(description="True if the same bytes were sent, or received, before")
    text: str | None = Field(
        description="The complete message; passwords, digests, media keys and DTMF digits are replaced by *, and "
        "bodies other than SDP are left out. Null for users of the dashboard who are not operators"
    )

    @classmethod
    def of(cls, stored: StoredSipMessage, full: bool) -> SipMessage:
        """The view of a stored message; its text only with `full`."""
        renamed = {"from": stored["source"], "to": stored["target"], "retransmission": stored["again"]}
        renamed |= {} if full else {"text": None}
        return cls.model_validate({**stored, **renamed})


class CallSipView(View):
    """The SIP trace of a call, oldest message first."""

    call_id: IdView
    messages: list[SipMessage] = Field(
        description="At most 200 messages; none if no INVITE was sent, or if an older version handled the call"
    )
    left_out: int = Field(description="Number of messages that were left out, after the 20th, because of the limit")
    ladder: str = Field(description="Ladder diagram of the messages as text, 100 columns wide")


async def live_trace(checked: CheckedRequest[NoBody, SipQuery]) -> SipTrace | None:
    """The trace of a live call, or of one that has just ended, requested before the transaction."""
    return await checked.services.sip_trace(checked.item)


def get(context: RequestContext[None, SipQuery]) -> CallSipView | web.Response:
    """GET /calls/{id}/sip"""
    call = calls.get(context.conn, context.owner, context.item)
    if call is None:
        raise NotFound("Call not found")
    trace = stored_or_live(context.conn, call.id, context.prepared)
    full = may_see_messages(context)
    match context.query.format:
        case "text":
            return web.Response(text=draw(trace))
        case "pcap":
            if not full:
                raise Forbidden("This needs the role operator")
            name = {"Content-Disposition": f'attachment; filename="call-{call.id}.pcap"'}
            return web.Response(body=pcap(trace), content_type=PCAP, headers=name)
        case "json":
            return sip_view(call.id, trace, full=full)


def stored_or_live(conn: sa.Connection, call_id: str, live: SipTrace | None) -> SipTrace:
    """Returns the stored trace of a call, else the live one."""
    return sip_traces.get(conn, call_id) or live or SipTrace(())


def may_see_messages(context: RequestContext[Any, Any]) -> bool:
    """True if the sender may see SIP messages in full: with an API key, as the operator, and on the command line."""
    return context.http is None or context.http[PRINCIPAL].sees_sip_messages


def sip_view(call_id: str, trace: SipTrace, *, full: bool) -> CallSipView:
    """Returns the view of a call's trace; the texts of its messages only with `full`."""
    messages = [SipMessage.of(each, full) for each in trace.messages]
    return CallSipView(call_id=call_id, messages=messages, left_out=trace.left_out, ladder=draw(trace))


ROUTES = (
    Route(
        method="GET",
        path="/calls/{id}/sip",
        name="getCallSip",
        role="viewer",
        tag="Calls",
        summary="Get the SIP messages of a call",
        description="Each message to and from the peer with its time, without secrets, and a ladder diagram of them. A "
        "live call has the messages so far; they are stored a second after its end.",
        prepare=live_trace,
        handler=get,
        query=SipQuery,
        item="Call",
        response=DataResponse(CallSipView, other_media_types=("text/plain", PCAP)),
    ),
)
