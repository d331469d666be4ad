"""Messages of the kinds that RFC 4475 lists, made anew, and what may become of each.

`served`: a call comes in, or another method gets its usual answer; `dropped`: nothing is said; a number: that status.
A reader may be lenient with much of what is invalid there, so several outcomes are right for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.sipcore.raw.raw_phone import RawPhone

SERVED, DROPPED = "served", "dropped"
REFUSED = frozenset({"400", DROPPED})
"""PJSIP drops what it cannot parse, where RFC 4475 would say 400."""
LENIENT = frozenset({"400", DROPPED, SERVED})
UNKNOWN_METHOD = frozenset({"405", "501"})


@dataclass(frozen=True)
class Torture:
    """`outcomes`: all that are right. `body` True: with an offer. `edits` change the request, each once."""

    section: str
    what: str
    outcomes: frozenset[str]
    method: str = "INVITE"
    edits: tuple[tuple[str, str], ...] = ()
    headers: tuple[str, ...] = ()
    offer: bool = True
    tail: bytes = b""

    def spell(self, phone: RawPhone, via: str) -> bytes:
        """The message of this phone over `via`."""
        method = self.method
        body = phone.offer("0") if self.offer and method == "INVITE" else ""
        text = phone.request(method, phone.dialog(), body=body, headers=self.headers, via=via).decode()
        for old, new in self.edits:
            text, found = re.subn(old, new, text, count=1, flags=re.MULTILINE)
            assert found, (self.what, old)
        return text.encode("latin-1", "surrogateescape") + self.tail


def _valid(section: str, what: str, *edits: tuple[str, str], outcome: str = SERVED, **more: object) -> Torture:
    return Torture(section, what, frozenset({outcome}), edits=edits, **more)  # type: ignore[arg-type]


def _invalid(section: str, what: str, outcomes: frozenset[str], *edits: tuple[str, str], **more: object) -> Torture:
    return Torture(section, what, outcomes, edits=edits, **more)  # type: ignore[arg-type]


_LONG = "x" * 190
_LONG_VIAS = "".join(f"\r\nVia: SIP/2.0/TCP h{n}.example;branch=z9hG4bK{n}{_LONG}" for n in range(6))
_ODD_VIAS = (
    r"\1\r\nVia: SIP/2.0/SCTP a.example;branch=z9hG4bK1"
    r"\r\nVia: SIP/2.0/UNKNOWN b.example;branch=z9hG4bK2"
)
_TORTUOUS = (
    (r"^Via: ", "v:  \r\n "),
    (r";rport", ' ; rport ;\r\n\tunknown = "a\\\\"b" ; other'),
    (r"^From: .*?<", 'From  :\r\n "A\\\\\\\\B\\\\" C"\r\n\t<'),
    (r"^To: ", "TO :\r\n "),
    (r"^CSeq: 1 ", "CSeq: 00000001\r\n  "),
    (r"^Max-Forwards: 70", "MAX-FORWARDS: 0068\r\nNewFangled: newfangled value\r\n continued newfangled value"),
    (r"^Contact: <(.*)>", r"m:\"Quoted string \\\"\\\"\" <\1>;newparam=newvalue;secondparam;q=0.33"),
)

VALID = [
    _valid("3.1.1.1", "folds, spaces and escapes wherever they may be", *_TORTUOUS),
    Torture("3.1.1.2", "every character that a method may have", UNKNOWN_METHOD, "!a-Z.9%*_+`'~", offer=False),
    _valid("3.1.1.3", "a user that is a whole URI, escaped", (r"sip:100@", "sip:sips%3A100%40example.com@")),
    _valid("3.1.1.4", "an escaped null", (r"sip:100@", "sip:100%00@")),
    Torture("3.1.1.5", "a percent sign that escapes nothing", UNKNOWN_METHOD, "RE%47IST%45R", offer=False),
    _valid("3.1.1.6", "no space before <", (r"^From: .*?<", "From: caller<"), method="OPTIONS"),
    _valid(
        "3.1.1.7",
        "long values everywhere",
        (r"^To: <sip:100@", f'To: "{_LONG * 2}" <sip:{_LONG}100@'),
        (r"^From: .*?<", f'From: "{_LONG}" <'),
        (r"^Max-Forwards", f"{_LONG}: {_LONG * 3}\r\nMax-Forwards"),
        (r"^(Via: [^\r]*)", r"\1" + _LONG_VIAS),
    ),
    _valid(
        "3.1.1.8", "more behind the end", method="OPTIONS", tail=b"INVITE sip:100@127.0.0.1 SIP/2.0\r\nMax-Forwards: 7"
    ),
    _valid("3.1.1.9", "parameters in the user", (r"sip:100@", "sip:100;par=u%40example.net@"), method="OPTIONS"),
    _valid(
        "3.1.1.10",
        "transports that nobody knows",
        (r"^(Via: [^\r]*)", _ODD_VIAS),
        method="OPTIONS",
    ),
    _valid("3.2", "a branch that is nothing but its cookie", (r"branch=[^;]*", "branch=z9hG4bK"), method="OPTIONS"),
    _valid("3.3.5", "an extension required of proxies", headers=("Proxy-Require: nothingSupportsThis",)),
    _valid("3.3.5", "an extension required of us", headers=("Require: nothingSupportsThis, orThis",), outcome="420"),
    _valid("3.3.6", "a body of an unknown type", (r"application/sdp", "application/unknownformat"), outcome="415"),
    _valid("3.3.11", "no hops left", (r"^Max-Forwards: 70", "Max-Forwards: 0")),
    _valid("3.4.1", "as RFC 2543 had it", (r";branch=[^;]*;rport", ""), (r"^Max-Forwards: 70\r\n", "")),
]

INVALID = [
    _invalid(
        "3.1.2.1",
        "separators without anything between",
        LENIENT,
        (r"^Contact: ", "Contact: ,,;; ,;,"),
        (r"^Via: SIP/2.0/", "Via: ;;,;,\r\nVia: SIP/2.0/"),
    ),
    _invalid("3.1.2.2", "a length beyond the end", REFUSED, (r"^Content-Length: .*?\r", "Content-Length: 9999\r")),
    _invalid("3.1.2.3", "a negative length", REFUSED, (r"^Content-Length: .*?\r", "Content-Length: -999\r")),
    _invalid("3.1.2.4", "numbers too large", REFUSED, (r"^CSeq: 1 ", "CSeq: 36893488147419103232 ")),
    _invalid("3.1.2.4", "too many hops", LENIENT, (r"^Max-Forwards: 70", "Max-Forwards: 300")),
    _invalid("3.1.2.6", "a quotation that does not end", REFUSED, (r"^To: <", 'To: "Mr. J. User <')),
    _invalid("3.1.2.7", "a request URI in <>", REFUSED, (r"^INVITE (\S+)", r"INVITE <\1>")),
    _invalid("3.1.2.8", "a space in the request URI", REFUSED, (r"^INVITE (\S+)", r"INVITE \1; lr")),
    _invalid("3.1.2.9", "several spaces in the first line", LENIENT, (r"^INVITE (\S+) ", r"INVITE  \1  ")),
    _invalid("3.1.2.10", "a space behind the first line", LENIENT, (r" SIP/2.0\r", " SIP/2.0  \r")),
    _invalid(
        "3.1.2.11", "headers in the request URI", LENIENT, (r"^INVITE (\S+)", r"INVITE \1?Route=%3Csip:example.com%3E")
    ),
    _invalid("3.1.2.12", "a time zone that is none", LENIENT, headers=("Date: Fri, 01 Jan 2010 16:00:00 EST",)),
    _invalid("3.1.2.13", "a name without <>", LENIENT, (r"^Contact: <(.*?)>", r"Contact: name \1")),
    _invalid("3.1.2.14", "spaces in an address", LENIENT, (r"^To: <(.*?)>", r"To: < \1 >")),
    _invalid("3.1.2.15", "a name that should be quoted", LENIENT, (r"^From: .*?<", "From: Bell, Alexander <")),
    _invalid(
        "3.1.2.16",
        "another version",
        frozenset({"505", DROPPED}),
        (r" SIP/2.0\r", " SIP/7.0\r"),
        (r"^Via: SIP/2.0", "Via: SIP/7.0"),
    ),
    _invalid("3.1.2.17", "a CSeq of another method", REFUSED, (r"^CSeq: 1 INVITE", "CSeq: 1 OPTIONS")),
    _invalid(
        "3.1.2.18",
        "an unknown method and a CSeq of another",
        REFUSED | UNKNOWN_METHOD,
        (r"^CSeq: 1 \w+", "CSeq: 1 INVITE"),
        method="NEWMETHOD",
    ),
    _invalid(
        "3.3.1",
        "no Call-ID, From or To",
        REFUSED,
        (r"^Call-ID: .*?\r\n", ""),
        (r"^From: .*?\r\n", ""),
        (r"^To: .*?\r\n", ""),
    ),
    _invalid(
        "3.3.2",
        "an unknown scheme",
        frozenset({"416", "400", DROPPED}),
        (r"^INVITE \S+", "INVITE nobodyKnowsThisScheme:totallyopaque"),
    ),
    _invalid(
        "3.3.3",
        "a scheme that is not SIP's",
        frozenset({"416", "400", DROPPED}),
        (r"^INVITE \S+", "INVITE soap.beep://192.0.2.103:3002"),
    ),
    _invalid(
        "3.3.4",
        "unknown schemes in From and To",
        LENIENT,
        (r"^To: <.*?>", "To: <isbn:2983792873>"),
        (r"^From: .*?<.*?>", "From: <http://www.example.com>"),
    ),
    _invalid(
        "3.3.8",
        "From, To, Call-ID and CSeq twice",
        REFUSED | {SERVED},
        headers=("From: <sip:b@h>;tag=8", "To: <sip:c@h>", "CSeq: 8 INVITE"),
    ),
    _invalid("3.3.9", "two lengths", LENIENT, headers=("Content-Length: 13",)),
    _invalid("3.3.15", "an answer that we cannot give", LENIENT | {"406"}, headers=("Accept: text/nobodyKnowsThis",)),
]

RESPONSES = {
    "3.1.1.12 unusual reason": b"SIP/2.0 200 = 2**3 * 5**2 \xd0\xbd\xd0\xbe \xd1\x81\xd1\x82\xd0\xbe",
    "3.1.1.13 no reason": b"SIP/2.0 100 ",
    "3.1.2.5 numbers too large": b"SIP/2.0 503 Service Unavailable\r\n"
    b'Retry-After: 949302838503028349304023988\r\nWarning: 1812 overture "In Progress"',
    "3.1.2.19 a status too large": b"SIP/2.0 4294967301 better not break the receiver",
    "3.3.10 a Via of everybody": b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 255.255.255.255;branch=z9hG4bKsilly",
}


def response(phone: RawPhone, first: bytes) -> bytes:
    """A response without a request."""
    request = phone.request("OPTIONS", phone.dialog())
    return first + b"\r\n" + request.partition(b"\r\n")[2]
