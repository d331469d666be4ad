"""Agents, in the order of their table."""

from __future__ import annotations

from typing import Final

from tests.contract.kinds import Choice, Flag, Form, Given, Id, Own, Real, Text, Time, Whole
from tests.contract.table import Field, Items, Record, Table

PLACEHOLDERS: Final = {"placeholders": "Hi {{first_name}}, {{ n2 }}", "no placeholder": "a } } {{ b"}
BAD_PLACEHOLDERS: Final = {
    text: f"Hello {text}!" for text in ("{{first name}}", "{{#if x}}", "{{}}", "{{a-b}}", "{{é}}", "{{a}} {{b c}}")
}
NO_ADDRESSES: Final = ("x", "example.com", "//example.com/x", "https://", "https://exa mple.com", "ftp://example.com/x")
REFUSED_ADDRESSES: Final = (
    "https://127.0.0.1/",
    "https://x:y@localhost:8443/",
    "https://2130706433/",
    "https://169.254.169.254/latest",
    "https://[::1]/",
    "https://metadata.google.internal/",
)
LANGUAGES: Final = Form(
    ("en", "de-CH", "zh-Hant-TW", "sr-Latn-RS", "gsw", "es-419", "x-whatever", "en-x-abc"),
    (
        "e",
        "en_US",
        "-en",
        "en-",
        "en--US",
        "e n",
        "é",
        "12",
        "abcdefghi",
        "zh-Hant-TWN",
        "en\n",
        "xx",
        "english",
        "en-us-foo",
    ),
)
WEBHOOK_EVENTS: Final = (
    *("call.started", "call.answered", "call.transferred"),
    *("call.failed", "call.completed", "call.turn"),
)
WARNING: Final = Record((Field("field", Text(1, 100), required=True), Field("message", Text(1, 500), required=True)))
EXTRACTION: Final = Record(
    (
        Field("name", Text(1, 255), required=True),
        Field("description", Text(0, 2000), required=True),
        Field("type", Choice(("string", "boolean", "number")), required=True),
    )
)
TARGET: Final = Record(
    (
        Field("name", Text(1, 255), required=True),
        Field("description", Text(0, 2000), required=True),
        Field(
            "number",
            Form(
                ("+41441234567", "+123456789012345", "12", "1234567"), ("1", "+0123", "+", "12a", "12345678", "0041 44")
            ),
            required=True,
        ),
        Field("mode", Choice(("cold", "warm_briefing", "warm_announce", "attended")), required=True),
        Field("phoneNumberId", Id("phone number"), nullable=True),
    )
)
TWO_EXTRACTIONS: Final = (
    {"name": "reached", "description": "Was it fine?", "type": "boolean"},
    {"name": "amount", "description": "", "type": "number"},
)
TWO_TARGETS: Final = (
    {"name": "Sales", "description": "Orders", "number": "+41441234567", "mode": "cold"},
    {"name": "Support", "description": "", "number": "12", "mode": "warm_briefing", "phoneNumberId": None},
)
MANY_EXTRACTIONS: Final = [{"name": f"e{number}", "description": "", "type": "string"} for number in range(101)]
MANY_TARGETS: Final = [{**TWO_TARGETS[0], "name": f"t{number}"} for number in range(65)]

AGENTS: Final = Table(
    noun="Agent",
    path="/agents",
    fields=(
        Field("name", Text(1, 255), required=True),
        Field("systemPrompt", Given(Text(0, 32000), PLACEHOLDERS, BAD_PLACEHOLDERS)),
        Field("slmModelId", Id("language model", owned=False), nullable=True),
        Field("voiceId", Id("voice", owned=False), nullable=True),
        Field("voiceSpeed", Real(0.6, 1.5), 1),
        Field("voiceStability", Real(0, 1), 0.5),
        Field("turnEndpointDelay", Whole(50, 2000), 100, nullable=True),
        Field("minTurnDuration", Whole(0, 2000), 50, nullable=True),
        Field("minInterruptionDuration", Whole(0, 2000), 100, nullable=True),
        Field("frameActivationThreshold", Real(0, 1), 0.35, nullable=True),
        Field("postSpeechCooldown", Whole(0, 5000), 400, nullable=True),
        Field("ultravadEotThreshold", Real(0, 1), 0.1, nullable=True),
        Field("speculativeSilenceMs", Whole(0, 5000), 150, nullable=True),
        Field("fallbackSilenceMs", Whole(0, 10000), 3000, nullable=True),
        Field("allowEndCall", Flag(), True),
        Field("isActive", Flag(), True),
        Field("postCallSummaryEnabled", Flag(), False),
        Field(
            "postCallExtractionSchema",
            Items(EXTRACTION, TWO_EXTRACTIONS, (MANY_EXTRACTIONS[:100], MANY_EXTRACTIONS)),
            [],
        ),
        Field(
            "postCallWebhookUrl",
            Form(
                ("https://example.com/hook?a=b", "https://user@[2001:db8::1]:8443/", "https://192.168.1.2/"),
                (*NO_ADDRESSES, *REFUSED_ADDRESSES, "http://example.com/hook"),
                sized={"4096 characters": ("https://x/" + "a" * 4086, "https://x/" + "a" * 4087)},
            ),
            nullable=True,
        ),
        Field("postCallWebhookSecret", Text(1, 1024), nullable=True, secret=True),
        Field(
            "postCallWebhookEvents",
            Items(Choice(WEBHOOK_EVENTS), WEBHOOK_EVENTS[:2], (WEBHOOK_EVENTS, (*WEBHOOK_EVENTS, "call.turn"))),
            ["call.completed"],
        ),
        Field("firstSpeaker", Choice(("user", "agent")), "user"),
        Field("agentGreeting", Given(Text(0, 1000), PLACEHOLDERS, BAD_PLACEHOLDERS), nullable=True),
        Field("agentGreetingEnabled", Flag(), False),
        Field("firstMessageUninterruptible", Flag(), False),
        Field("firstMessageDelay", Whole(0, 10000), 0),
        Field("maxCallDurationSeconds", Whole(30, 3600), 600),
        Field("languageHint", LANGUAGES, nullable=True),
        Field("knowledgeSearchInstructions", Text(0, 2000), nullable=True),
        Field("backgroundSoundId", Id("background sound"), nullable=True),
        Field("backgroundSoundVolume", Real(0, 1), 0.15),
        Field("holdMessage", Text(0, 500), nullable=True),
        Field(
            "holdMusicUrl",
            Form(
                ("https://example.com/a.wav", "http://example.com/a.mp3"),
                (*NO_ADDRESSES, "file:///etc/passwd"),
                sized={"500 characters": ("https://x/" + "a" * 490, "https://x/" + "a" * 491)},
            ),
            nullable=True,
        ),
        Field(
            "toolIds",
            Items(Id("tool"), (Own("tool"), Own("second tool")), ([Own("tool")] * 500, [Own("tool")] * 501)),
            nullable=True,
        ),
        Field("transferTargets", Items(TARGET, TWO_TARGETS, (MANY_TARGETS[:64], MANY_TARGETS)), []),
        Field("customerSilenceMs", Whole(0, 60000), 10000),
        Field("recordAfterTransfer", Flag(), True),
        Field(
            "voicemailDetection",
            Choice(("off", "detect", "leave_message")),
            "off",
            beside={"leave_message": {"voicemailMessage": "Please call us back."}},
        ),
        Field(
            "voicemailMessage",
            Given(Text(0, 500), PLACEHOLDERS, BAD_PLACEHOLDERS),
            nullable=True,
            beside={text: {"voicemailDetection": "off"} for text in ("", "None")},
        ),
        Field("stayOnCall", Flag(), False),
        Field("recordingEnabled", Flag(), True),
        Field("recordingAnnouncement", Given(Text(0, 500), PLACEHOLDERS, BAD_PLACEHOLDERS), nullable=True),
    ),
    told=(
        Field("id", Id("agent"), required=True),
        Field("postCallWebhookSecretSet", Flag(), required=True),
        Field("createdAt", Time(), required=True),
        Field("updatedAt", Time(), required=True),
        Field("version", Whole(1, None), required=True),
        Field("warnings", Items(WARNING), required=True),
    ),
    least=lambda: {"name": "Anna"},
    moving=frozenset({"updatedAt", "version", "postCallWebhookSecretSet", "warnings"}),
)
