"""SIP header fields and URIs: reads those of received messages, and formats those to send.

Received messages may be hostile: results are short, printable and valid Unicode, and the processing time is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import quote, unquote

# Possessive, so that no input causes backtracking.
_NAME_ADDR = re.compile(r'(?:"((?:[^"\\]|\\.)*+)"|([^<"]*+))\s*+<([^>]*+)>', re.DOTALL)
_URI = re.compile(r"(sips?|tel):([^>]*+)", re.IGNORECASE)
_AFTER_USER = re.compile(r"[:;?]")
_AFTER_HOST = re.compile(r"[;?]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_LINE_END = re.compile("\r?\n")
_BODY = re.compile("\r?\n\r?\n")
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z|\\)|<[^>]*+(?:>|\Z)|,|[^",<]++', re.DOTALL)
_BLANKS = re.compile("[ \t]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TAG = re.compile(r";[ \t]*+tag[ \t]*+=[ \t]*+([^;,\s]++)", re.IGNORECASE)
_MAX_PRINTABLE = 128
_USER = "-_.!~*'()&=+$,;?/"
"""Characters that need no escapes in the user part, beside letters and digits (RFC 3261 25.1)."""


@dataclass(frozen=True)
class NameAddr:
    """A name-addr (RFC 3261 25.1): the user part of its URI ("" without one) and its display name."""

    user: str
    display_name: str


def uri_user(uri: str) -> str:
    """The user part of a `sip:`, `sips:` or `tel:` URI without password and parameters, unescaped (RFC 3261 19.1.1);
    else ""."""
    match = _URI.match(uri.strip())
    if not match:
        return ""
    user, at, _ = match[2].partition("@")
    return printable(unquote(_AFTER_USER.split(user, maxsplit=1)[0])) if at or match[1].lower() == "tel" else ""


def parse_name_addr(name_addr: str) -> NameAddr:
    """Read a From or To value: `"Ann" <sip:ann@host>;tag=1`, `Ann <sip:ann@host>` or a bare URI (RFC 3261 20.10)."""
    match = _NAME_ADDR.match(name_addr.strip())
    if not match:
        return NameAddr(uri_user(name_addr), "")
    quoted, plain, uri = match.groups()
    name = _ESCAPED.sub(r"\1", quoted) if quoted is not None else plain.strip()
    return NameAddr(uri_user(uri), printable(name))


def parse_tag(name_addr: str) -> str:
    """The tag of a From or To value (RFC 3261 19.3); "" without one."""
    match = _NAME_ADDR.match(name_addr.strip())
    parameters = name_addr.strip()[match.end() :] if match else name_addr
    tag = _TAG.search(parameters)
    return printable(tag[1]) if tag else ""


def split_name_addr(name_addr: str) -> tuple[str, str]:
    """The URI of a name-addr or addr-spec, and the header parameters behind it (RFC 3261 20.10)."""
    match = _NAME_ADDR.match(name_addr.strip())
    if match:
        return match[3].strip(), name_addr.strip()[match.end() :]
    uri, semicolon, parameters = name_addr.strip().partition(";")
    return uri, semicolon + parameters


def format_name_addr(name_addr: NameAddr, host: str) -> str:
    """A From value (RFC 3261 20.20): the display name, if any, as a quoted string. The user must need no escapes."""
    quoted = re.sub(r'(["\\])', r"\\\1", printable(name_addr.display_name))
    return f'"{quoted}" <sip:{name_addr.user}@{host}>' if quoted else f"<sip:{name_addr.user}@{host}>"


def uri_host(uri: str) -> str:
    """The host of `sip:user@host[:port][;parameters]`."""
    return without_port(_AFTER_HOST.split(uri.rpartition("@")[2], maxsplit=1)[0])


def uri_host_port(uri: str) -> str:
    """`host[:port]` of a `sip:` or `sips:` URI, in lower case; "" for any other."""
    match = _URI.match(uri.strip())
    if not match or match[1].lower() == "tel":
        return ""
    return printable(_AFTER_HOST.split(match[2].rpartition("@")[2], maxsplit=1)[0].lower())


def bracketed(host: str) -> str:
    """A host as written in URIs and before ports: an IPv6 address in brackets (RFC 3261 25.1)."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def is_ip_address(host: str) -> bool:
    """True if a host is an IP address, IPv6 without brackets."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def escape_user(user: str) -> str:
    """A user part with reserved characters escaped."""
    return quote(user, safe=_USER)


def replace_user(uri: str, user: str) -> str:
    """`sip:user@host...` with another user, which must need no escapes."""
    return f"sip:{user}@{uri.rpartition('@')[2]}"


def request_user(message: str) -> str:
    """The user part of the request URI."""
    return uri_user(request_uri(message))


def request_uri(message: str) -> str:
    """The request URI in the first line of a request; "" when the line is malformed."""
    words = _BLANKS.split(_lines(message)[0].strip(" \t"))
    return words[1] if len(words) == 3 else ""


def header_value(message: str, name: str, short: str) -> str:
    """The first value of a header, by its name or its compact form, unfolded (RFC 3261 7.3.1); "" without one."""
    names = (name.lower(), short.lower())
    return next((value for field, value in header_fields(message) if field.lower() in names), "")


def header_fields(message: str) -> Iterator[tuple[str, str]]:
    """Every header field: its name as spelled, and its value unfolded (RFC 3261 7.3.1)."""
    name, parts = "", list[str]()
    for line in _lines(message):
        if line[:1] in (" ", "\t"):
            parts.append(line.strip())
            continue
        if name:
            yield name, " ".join(parts)
        field, colon, value = line.partition(":")
        name, parts = (field.strip(" \t"), [value.strip()]) if colon else ("", [])
    if name:
        yield name, " ".join(parts)


def split_list(value: str) -> Iterator[str]:
    """The entries of a comma-separated header; commas in quotes and angle brackets do not separate (RFC 3261 7.3)."""
    entry = ""
    for piece in _PIECE.findall(value):
        if piece == ",":
            yield entry.strip()
            entry = ""
        else:
            entry += piece
    yield entry.strip()


def _lines(message: str) -> list[str]:
    """The lines before the body, ended by CR LF or LF; other line ends of Unicode are part of a line."""
    return _LINE_END.split(_BODY.split(message.lstrip("\r\n"), maxsplit=1)[0])


def without_port(address: str) -> str:
    """The host of `host:port` or `[host]:port`, as PJSIP writes addresses."""
    bare = address.count(":") > 1 and not address.startswith("[")
    host, _, port = address.rpartition(":")
    return (host if host and port.isdigit() and not bare else address).strip("[]")


def printable(text: str, max_length: int = _MAX_PRINTABLE) -> str:
    """At most `max_length` characters, without control characters and line ends; invalid UTF-8 becomes U+FFFD."""
    text = _SURROGATE.sub("\ufffd", text[: 4 * max_length])
    return "".join(c for c in text if c.isprintable())[:max_length]


HeaderLines = Sequence[tuple[str, str]]
"""Names and values of headers to send, a line each; a name may occur more than once."""
