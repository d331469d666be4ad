"""Masks secrets in SIP messages: passwords, digests, SRTP keys, and DTMF digits (which may be of a card number).
Content that is not known to be harmless is left out. Linear in the length of the message; a few searches of the
whole message find that most messages hold no secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_AUTH_HEADERS: Final = frozenset(
    ("authorization", "proxy-authorization", "www-authenticate", "proxy-authenticate")
)  # RFC 3261 20.7, 20.27, 20.28, 20.44
_SHOWN_PARAMETERS: Final = frozenset(("username", "realm", "uri", "algorithm", "qop", "nc", "stale", "domain"))
_SECRET_WORDS: Final = ("auth", "token", "secret", "passw", "credential", "key", "cookie", "pin", "pwd")
"""A header field with one of them in its name is masked."""
_OMITTED_BODY: Final = "(a body that is not shown)"
_MAX_DEPTH: Final = 4
"""Depth of nested bodies that are read."""
_SHOWN_IN_URI: Final = frozenset(("replaces", "reason", "privacy", "require"))

_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NAME: Final = re.compile(r"([^\s:]++)\s*+:")
_CONTENT_TYPE: Final = re.compile(r"^(?:content-type|c)\s*+:((?:[^\n]|\n[ \t])*+)", re.MULTILINE | re.IGNORECASE)
_ENCODED: Final = re.compile(
    r"^(?:(?:content-encoding|e)\s*+:|content-transfer-encoding\s*+:\s*+[bq](?!inary))", re.MULTILINE | re.IGNORECASE
)
_SCHEME: Final = re.compile(r"(?:sips?|https?|wss?|ftp):", re.IGNORECASE)
_DELIMITERS: Final = " \t\n<>\"'"
_URI_HEADER: Final = re.compile(r"""([?&])([^=&\s<>"?]*+)=(?:[^&>\n]|\n[ \t])*+""")
_PIECE: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*+"|[^",])++(?:,|\Z)', re.DOTALL)
_PARAMETER: Final = re.compile(r'\s*+([A-Za-z0-9_-]++)\s*+=\s*+("[^"\\]*+"|[^\s",;]++)\s*+')
_DIGEST: Final = re.compile(r"\s*+(Digest)\s++", re.IGNORECASE)
_SDP_WORDS: Final = ("crypto", "ice-pwd", "key-mgmt", "inline", "signal")
_SDP_KEY: Final = re.compile(r"^[^\w\n]*+k[^\w\n=]*+=", re.MULTILINE | re.IGNORECASE)
_CRYPTO: Final = re.compile(r"a\s*=\s*crypto\s*:", re.IGNORECASE)
_CRYPTO_SHOWN: Final = re.compile(r"(a=crypto:\d{1,9} [A-Z0-9]+(?:_[A-Z0-9]+)+) inline:", re.IGNORECASE)
_SDP_SECRET: Final = re.compile(r"\s*(a\s*=\s*(?:ice-pwd|key-mgmt)\s*:|(?:k|signal)\s*=)", re.IGNORECASE)
_INLINE: Final = re.compile(r"inline:\S*+", re.IGNORECASE)
_DTMF: Final = re.compile(r"application/dtmf(?:-relay)?\s*(?:;|\Z)", re.IGNORECASE)
_BOUNDARY: Final = re.compile(r"""multipart/[^;]*+;(?:.*;)?\s*boundary\s*=\s*(?:"([^"]+)"|([^\s;"]+))""", re.I | re.S)
_PUSH_DEVICE: Final = re.compile(r"""(;\s*+pn-prid\s*+=\s*+)(?:"[^"]*+"|[^;?&>\s",]++)""", re.IGNORECASE)
"""RFC 8599: its holder can send push notifications to the phone."""
_DURATION: Final = re.compile(r"\s*Duration\s*=\s*\d{1,6}\s*", re.IGNORECASE)


def mask_message(message: bytes) -> str:
    """The message with its secrets masked: lines end with LF, control characters and invalid UTF-8 become U+FFFD."""
    shown = _masked_message(
        message.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").lstrip("\n"), _MAX_DEPTH
    )
    return shown if shown.replace("\n", "").isprintable() else _UNPRINTABLE.sub("\ufffd", shown)


def is_secret_header(name: str) -> bool:
    """True if a header field of this name may hold a secret."""
    return any(word in name.lower() for word in _SECRET_WORDS)


def mask_uris(text: str) -> str:
    """Text with URIs, whose passwords and header fields are masked."""
    if "@" in text:
        text = "@".join(_without_passwords(text.split("@")))
    if "?" in text:
        text = _URI_HEADER.sub(_masked_uri_header, text)
    return _PUSH_DEVICE.sub(r"\1*", text) if ";" in text else text


def _masked_message(text: str, depth: int) -> str:
    head, _, body = text.partition("\n\n")
    shown = _masked_fields(head.removesuffix("\n")) + "\n"
    if body.strip("\n"):
        shown = f"{shown}\n{_masked_body(_kinds(head, body), body, depth)}"
    return shown


def _kinds(head: str, body: str) -> list[str]:
    """The Content-Type values of a body; none when it is encoded."""
    if _ENCODED.search(head) or _ENCODED.search(body):
        return []
    return [kind.strip() for kind in _CONTENT_TYPE.findall(head)]


def _masked_fields(text: str) -> str:
    lowered = text.lower()
    if any(word in lowered for word in _SECRET_WORDS):
        text = "\n".join(map(_masked_field, _fields(text)))
    return mask_uris(text)


def _fields(text: str) -> Iterator[str]:
    """Header fields with their continuation lines (RFC 3261 7.3.1)."""
    field: list[str] = []
    for line in text.split("\n"):
        if field and line[:1] not in (" ", "\t"):
            yield "\n".join(field)
            field = []
        field.append(line)
    yield "\n".join(field)


def _masked_field(field: str) -> str:
    match = _NAME.match(field)
    if match is None:
        return field
    name, value = match[1].lower(), field[match.end() :]
    if not is_secret_header(name):
        return field
    return f"{match[0]} {_masked_credentials(value) if name in _AUTH_HEADERS else '*'}"


def _masked_credentials(value: str) -> str:
    """`Digest` with its harmless parameters; anything else is `*`."""
    scheme = _DIGEST.match(value)
    if scheme is None:
        return "*"
    shown, at = [], scheme.end()
    while at < len(value):
        piece = _PIECE.match(value, at)
        if piece is None:  # a quoted string without an end: parameters cannot be told apart
            return f"{scheme[1]} *"
        shown.append(_masked_parameter(piece[0].removesuffix(",")))
        at = piece.end()
    return f"{scheme[1]} {', '.join(shown)}"


def _masked_parameter(text: str) -> str:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        return "*"
    return f"{match[1]}={match[2]}" if match[1].lower() in _SHOWN_PARAMETERS else f"{match[1]}=*"


def _without_passwords(parts: list[str]) -> Iterator[str]:
    """The pieces between the @ of a text. In the piece before one, what follows the second colon of `sip:user:password`
    is a password; so is the next piece when it holds no delimiter: the password had an @ in it."""
    in_password = False
    for part in parts[:-1]:
        cut = max(map(part.rfind, _DELIMITERS)) + 1
        if in_password and not cut:
            yield "*"
            continue
        scheme = _SCHEME.search(part, cut)
        colon = part.find(":", scheme.end()) if scheme else -1
        in_password = colon >= 0
        yield f"{part[: colon + 1]}*" if in_password else part
    yield parts[-1]


def _masked_uri_header(match: re.Match[str]) -> str:
    return match[0] if match[2].lower() in _SHOWN_IN_URI else f"{match[1]}{match[2]}=*"


def _masked_body(kinds: list[str], body: str, depth: int) -> str:
    """SDP, and types that may contain it, without SRTP keys; DTMF as `Signal=*`; other bodies are left out."""
    if len(kinds) != 1 or not depth:
        return _OMITTED_BODY
    kind = kinds[0].lower()
    if kind.startswith("application/sdp"):
        return _masked_sdp(_masked_fields(body))
    if kind.startswith("message/sip"):
        return _masked_sdp(_masked_message(body, depth - 1)).removesuffix("\n")
    if _DTMF.match(kind):
        return "\n".join(["Signal=*", *filter(_DURATION.fullmatch, body.split("\n"))])
    boundary = _BOUNDARY.match(kinds[0])
    return _masked_parts(f"--{boundary[1] or boundary[2]}", body, depth - 1) if boundary else _OMITTED_BODY


def _masked_parts(delimiter: str, body: str, depth: int) -> str:
    """The parts between delimiters (RFC 2046 5.1.1), each masked by its type; the text around them is left out."""
    shown: list[str] = []
    part: list[str] = []
    inside = False
    for line in [*body.split("\n"), delimiter]:
        if line.rstrip() not in (delimiter, f"{delimiter}--"):
            part.append(line)
            continue
        if inside:
            shown.append(_masked_part("\n".join(part), depth))
        shown.append(line)
        inside, part = line.rstrip() == delimiter, []
    return "\n".join(shown[:-1])


def _masked_part(part: str, depth: int) -> str:
    head, blank_line, body = part.partition("\n\n")
    if not blank_line or not _NAME.match(head):
        return _OMITTED_BODY
    return f"{_masked_fields(head)}\n\n{_masked_body(_kinds(head, body), body, depth)}"


def _masked_sdp(body: str) -> str:
    """RFC 4568 (SDES), RFC 8839 (ICE), RFC 4567 (MIKEY) and the `k=` of RFC 4566; fingerprints (RFC 8122) stay."""
    lowered = body.lower()
    if not any(word in lowered for word in _SDP_WORDS) and not _SDP_KEY.search(body):
        return body
    return "\n".join(map(_masked_sdp_line, body.split("\n")))


def _masked_sdp_line(line: str) -> str:
    text = line.strip()
    if _CRYPTO.match(text):
        shown = _CRYPTO_SHOWN.match(text)
        return f"{shown[1]} inline:*" if shown else "a=crypto:*"
    secret = _SDP_SECRET.match(line)
    return f"{secret[1]}*" if secret else _INLINE.sub("inline:*", line)
