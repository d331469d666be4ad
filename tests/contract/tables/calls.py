"""Calls, in the order of their table, and the body that starts one."""

from __future__ import annotations

from typing import Any, Final

from tests.contract.kinds import Choice, Flag, Form, FreeObject, Id, Own, Real, Text, Time, Variables, Whole
from tests.contract.table import Field, Items, Record, Table
from tests.contract.tables.agents import WEBHOOK_EVENTS

STATUSES: Final = ("queued", "ringing", "in_progress", "completed", "failed", "no_answer")
DIRECTIONS: Final = ("inbound", "outbound")
ENDED_REASONS: Final = (
    *("customer_ended", "customer_silent", "agent_ended", "max_duration", "api_hangup", "no_answer", "busy"),
    *("rejected", "invalid_number", "unreachable", "transferred", "voicemail", "media_timeout", "server_shutdown"),
    *("server_restart", "error"),
)
TRANSCRIPT: Final = Items(
    Record(
        (
            Field("role", Choice(("user", "assistant")), required=True),
            Field("content", Text(), required=True),
            Field("startMs", Whole(0, None)),
            Field("endMs", Whole(0, None)),
        )
    )
)
TOOL_ITEM: Final = Record(
    (
        Field("role", Choice(("tool",)), required=True),
        Field("name", Text(), required=True),
        Field("arguments", FreeObject()),
        Field("ok", Flag(), required=True),
        Field("result", Text()),
        Field("error", Text()),
        Field("startMs", Whole(0, None), required=True),
        Field("endMs", Whole(0, None), required=True),
        Field("durationMs", Whole(0, None), required=True),
    )
)
"""Of a transcript with `include=tools`."""
ANALYSIS: Final = Record(
    (
        Field("summary", Text()),
        Field("extractions", FreeObject(), required=True),
        Field("method", Choice(("model", "extractive")), required=True),
        Field("error", Text(), required=True),
    )
)
TRANSFER_MODES: Final = ("cold", "warm_briefing", "warm_announce", "attended")
TRANSFER_STATUSES: Final = (
    *("initiated", "ringing", "briefing", "connected", "completed"),
    *("declined", "no_answer", "busy", "voicemail", "cancelled", "failed"),
)
TRANSFER_ATTEMPT: Final = Record(
    (
        Field("number", Text(), required=True),
        Field("startedAt", Time(), required=True),
        Field("endedAt", Time()),
        Field("sipStatus", Whole(100, 699)),
        Field("outcome", Text()),
    )
)
TRANSFER_STATE: Final = Record(
    (Field("status", Choice(TRANSFER_STATUSES), required=True), Field("at", Time(), required=True))
)
TRANSFER_CALL: Final = Record(
    (
        Field("id", Id("call"), required=True),
        Field("transferType", Choice(TRANSFER_MODES), required=True),
        Field("transferStatus", Choice(TRANSFER_STATUSES), required=True),
        Field("durationSeconds", Whole(0, None)),
        Field("customerNumber", Text(), required=True),
        Field("recordingUrl", Text()),
        Field("transcript", TRANSCRIPT, required=True),
        Field("startedAt", Time()),
        Field("endedAt", Time()),
        Field("status", Choice(STATUSES), required=True),
        Field("targetName", Text(), required=True),
        Field("reason", Text()),
        Field("summary", Text()),
        Field("requestedBy", Choice(("agent", "api", "dashboard")), required=True),
        Field("createdAt", Time(), required=True),
        Field("answeredAt", Time()),
        Field("connectedAt", Time()),
        Field("sipStatus", Whole(100, 699)),
        Field("declineReason", Text()),
        Field("attempts", Items(TRANSFER_ATTEMPT), required=True),
        Field("states", Items(TRANSFER_STATE), required=True),
    )
)
LIVE_STATES: Final = (
    *("queued", "ringing", "listening", "thinking", "speaking", "tool", "on_hold", "transferring", "ended"),
)
LIVE: Final = Record(
    (
        Field("durationSeconds", Whole(0, None)),
        Field("responseGapMs", Whole(-3_600_000, None)),
        Field("partialTranscript", Text()),
        *(Field(name, Real(0, 100)) for name in ("lossPercent", "sentLossPercent")),
        *(Field(name, Real(1, 4.5)) for name in ("mos", "sentMos")),
    )
)
LISTED: Final = (
    Field("id", Id("call"), required=True),
    Field("organizationId", Id("organization"), required=True),
    Field("agentId", Id("agent")),
    Field("agentVersion", Whole(1, None)),
    Field("phoneNumberId", Id("phone number")),
    Field("callSid", Text()),
    Field("provider", Text()),
    Field("direction", Choice(DIRECTIONS), required=True),
    Field("status", Choice(STATUSES), required=True),
    Field("customerNumber", Text(), required=True),
    Field("calledNumber", Text()),
    Field("durationSeconds", Whole(0, None)),
    Field("recordingUrl", Text()),
    Field("turnCount", Whole(0, None), required=True),
    Field("endedReason", Choice(ENDED_REASONS)),
    Field("contextVariables", FreeObject(), required=True),
    Field("metadata", FreeObject(), required=True),
    Field("parentCallId", Id("call")),
    Field("transferType", Choice(TRANSFER_MODES)),
    Field("transferStatus", Choice(TRANSFER_STATUSES)),
    Field("transferCalls", Items(TRANSFER_CALL), required=True),
    Field("startedAt", Time()),
    Field("endedAt", Time()),
    Field("createdAt", Time(), required=True),
    Field("node", Text()),
    Field("state", Choice(LIVE_STATES), required=True),
    Field("live", LIVE),
)
COST: Final = Field("cost", Real(0, 1e9), required=True)
"""Only on the paid plan."""
USAGE: Final = Field(
    "usage",
    Record(
        (
            Field("telephonySeconds", Real(0, 1e6), required=True),
            Field("heardSeconds", Real(0, 1e6), required=True),
            *(
                Field(name, Whole(0, None), required=True)
                for name in ("promptTokens", "completionTokens", "spokenCharacters")
            ),
        )
    ),
    required=True,
)
"""With the cost, for one call."""
SIP_END: Final = Record(
    (
        Field("statusCode", Whole(200, 699)),
        Field("reasonPhrase", Text()),
        Field("q850Cause", Whole(1, 127)),
        Field("q850Text", Text()),
        Field("byPeer", Flag(), required=True),
    )
)
_HEARD: Final = (
    Field("packets", Whole(0, None), required=True),
    Field("lost", Whole(0, None)),
    Field("lossPercent", Real(0, 100)),
    Field("jitterMs", Real(0, 1e6)),
    Field("maxJitterMs", Real(0, 1e6)),
    Field("mos", Real(1, 4.5)),
)
MEDIA_QUALITY: Final = Record(
    (
        Field("codec", Text(), required=True),
        Field(
            "received",
            Record(
                (
                    *_HEARD,
                    *(Field(name, Whole(0, None), required=True) for name in ("duplicate", "reordered", "foreign")),
                    *(Field(name, Whole(0, None), required=True) for name in ("malformed", "discardedMs")),
                )
            ),
            required=True,
        ),
        Field("sent", Record(_HEARD), required=True),
        Field("roundTripMs", Real(0, 1e6)),
        Field("maxRoundTripMs", Real(0, 1e6)),
    )
)
DETAIL: Final = (
    *LISTED,
    Field("transcript", TRANSCRIPT, required=True),
    Field("analysis", ANALYSIS),
    Field("mediaQuality", MEDIA_QUALITY),
    Field("sipEnd", SIP_END),
    Field("recordingRemovedAt", Time()),
    Field("recordingAbsentReason", Choice(("retention", "disabled"))),
    Field("transcriptRemovedAt", Time()),
)
ATTEMPT: Final = Record(
    (
        Field("id", Id("webhook attempt"), required=True),
        Field("event", Choice(WEBHOOK_EVENTS), required=True),
        Field("endpointId", Id("webhook endpoint")),
        Field("deliveryId", Id("webhook delivery"), required=True),
        Field("attempt", Whole(1, None), required=True),
        Field("status", Choice(("pending", "succeeded", "failed")), required=True),
        Field("responseStatus", Whole(100, 599)),
        Field("responseBody", Text()),
        Field("error", Text()),
        Field("durationMs", Whole(0, None)),
        Field("manual", Flag(), required=True),
        Field("createdAt", Time(), required=True),
        Field("nextAttemptAt", Time()),
    )
)
"""Of sending a call's webhook."""


def _least() -> dict[str, Any]:
    return {"agentId": Own("agent"), "phoneNumberId": Own("trunk"), "to": "+41441234567"}


BODY: Final = (
    Field("agentId", Id("agent", known=False), required=True),
    Field("phoneNumberId", Id("trunk", known=False), required=True),
    Field(
        "to",
        Form(
            ("+41441234567", "+12", "+123456789012345", "12", "1234567"),
            (
                "+1",
                "+1234567890123456",
                "+0123",
                "+",
                "1",
                "12345678",
                "41441234567",
                "+12 34",
                "+12a",
                " +123",
                "+123\n",
                "sip:+123@x",
            ),
        ),
        required=True,
        shown_as="customerNumber",
    ),
    Field("contextVariables", Variables(), {}),
    Field("metadata", FreeObject(), {}),
)
BODY_NAMES: Final = {each.shown_as or each.name for each in BODY}
CALLS: Final = Table(
    noun="Call",
    path="/calls",
    fields=BODY,
    changes=(),
    told=tuple(each for each in DETAIL if each.name not in BODY_NAMES),
    least=_least,
    deletable=False,
)
