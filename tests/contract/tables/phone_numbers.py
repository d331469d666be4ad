"""Phone numbers, in the order of their table."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from tests.contract.kinds import Choice, Flag, Form, FreeObject, Given, Id, Text, Time, Whole
from tests.contract.table import Field, Items, Table

NO_HOSTS: Final = ("a..b", ".a", "192.0.2.256", "1.2.3", "a b", "a/b", "ä.example", "[", "[fe80]")
PLACE: Final = Form(
    ("x", "pbx.example", "pbx:5080", "sip:pbx.example;transport=tcp", "192.0.2.1:5060", "[2001:db8::1]:5060"),
    (*NO_HOSTS, "sip:a..b:5060"),
    sized={"100 characters": ("x" * 100, "x" * 101)},
)
USER: Final = Given(Text(1, 60, words="Grüße🙂"), bad={"a line break": "a\r\nb"})
CREDENTIAL: Final = Text(1, 1024)
TRANSPORT: Final = Choice(("udp", "tcp", "tls"))
SOURCE: Final = Form(
    ("192.0.2.1", "10.0.0.0/8", "192.0.2.77/24", "2001:db8::1", "2001:db8::/16", "sbc.example"),
    (
        *NO_HOSTS,
        "0.0.0.0/0",
        "0.0.0.0/8",
        "224.0.0.5",
        "ff02::1",
        "10.0.0.0/7",
        "10.0.0.0/33",
        "2001:db8::/15",
        "2001:db8::/129",
        "sbc.example/24",
        "a:5060",
    ),
    sized={"255 characters": ("x" * 255, "x" * 256)},
)
MANY: Final = [f"192.0.2.{each}" for each in range(40)]
PREFIX: Final = Form(
    ("+", "+49", "+123456789012345", "1", "123456789012345"),
    ("+0", "49+", "+1234567890123456", "1234567890123456", "+49 30", "a", "1\n"),
)
QUALIFY: Final = Given(Whole(0, 3600), good={"the shortest": 10}, bad={"one": 1, "too short": 9})
_SUFFIXES = count(1000)


def _least() -> dict[str, Any]:
    return {"number": f"+4144{next(_SUFFIXES)}", "provider": "sip"}


PHONE_NUMBERS: Final = Table(
    noun="Phone number",
    path="/phone-numbers",
    fields=(
        Field("name", Text(0, 255)),
        Field(
            "number",
            Form(
                ("+41441234567", "+12", "+123456789012345", "12", "123456789012345"),
                (
                    "1",
                    "+0123",
                    "+1",
                    "+",
                    "+1234567890123456",
                    "1234567890123456",
                    "12a",
                    "+12 34",
                    " 12",
                    "12\n",
                    "١٢٣",
                ),
            ),
            required=True,
        ),
        Field("provider", Choice(("sip", "provider_a", "provider_b", "provider_c")), required=True),
        Field(
            "sipMode",
            Choice(("registration", "ip_allowlist")),
            beside={
                "registration": {"sipUsername": "me", "sipPassword": "hush", "sipProxy": "registrar.example"},
                "ip_allowlist": {"sipIp": "192.0.2.7"},
            },
        ),
        Field("agentId", Id("agent"), nullable=True),
        *(
            Field(f"provider_{which}{what}", CREDENTIAL, secret=True)
            for which in "abc"
            for what in ("AccountSid", "AuthToken")
        ),
        Field("sipUsername", USER),
        Field("sipPassword", CREDENTIAL, secret=True),
        Field("sipProxy", PLACE),
        Field("sipOutboundProxy", PLACE, nullable=True),
        Field("sipAuthUser", USER, nullable=True),
        Field(
            "sipIp",
            Form(
                ("192.0.2.1", "2001:db8::1", "pbx.example"),
                (*NO_HOSTS, "2001:db8::g"),
                sized={"255 characters": ("x" * 255, "x" * 256)},
            ),
        ),
        Field("sipPort", Whole(1, 65535)),
        Field("sipProtocol", TRANSPORT),
        Field("sipRegisterTransport", TRANSPORT),
        Field("sipSources", Items(SOURCE, two=("192.0.2.8", "198.51.100.0/24"), full=(MANY[:32], MANY[:33])), []),
        Field("sipInboundAuth", Flag(), False, beside={"True": {"sipUsername": "me", "sipPassword": "hush"}}),
        Field("sipAllowRedirect", Flag(), False),
        Field("sipAllowRefer", Flag(), False),
        Field("sipQualifySeconds", QUALIFY, 60),
        Field("sipTransferMethod", Choice(("auto", "refer", "bridge")), "auto"),
        Field("sipTransferCallerId", Choice(("own", "caller", "caller_in_from")), "own"),
        Field("outboundPrefixes", Items(PREFIX, two=("+49", "1"), full=(["+4"] * 100, ["+4"] * 101)), nullable=True),
        Field("outboundPerMinute", Whole(1, 6000), nullable=True),
        Field("metadata", FreeObject(), {}),
    ),
    told=(
        Field("id", Id("phone number"), required=True),
        Field("sipStatus", Choice(("unregistered", "registering", "registered", "failed", "listening")), required=True),
        Field("sipStatusDetail", Text()),
        Field("sipStatusSince", Time()),
        Field("createdAt", Time(), required=True),
        Field("updatedAt", Time(), required=True),
    ),
    least=_least,
    moving=frozenset({"updatedAt", "sipStatus", "sipStatusDetail", "sipStatusSince"}),
)
