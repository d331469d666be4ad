"""What peers write in SIP messages: what is read of it is short and printable, and no secret is shown."""

from __future__ import annotations

from typing import Final

from sipcore.messages import contact as contacts
from sipcore.messages import headers, masking, reason_header
from sipcore.messages.headers import NameAddr
from sipcore.security import digest
from sipcore.security.digest import Credentials, DigestTarget, DigestVerifier
from sipcore.trace.sip_message import SipMessage

_LONGEST: Final = 128
_CREDENTIALS: Final = Credentials("ann", "s3cret")
_SOURCE: Final = "192.0.2.1"
_NONCE: Final = "NONCE"
"""Stands in an input for a nonce of ours."""
_RESPONSE: Final = "RESPONSE"
"""Stands in an input for the right response."""

_NEEDED: Final = frozenset(("realm", "nonce", "nc", "cnonce", "qop"))
"""What a response is made of."""


def _is_short(text: str, longest: int = _LONGEST) -> None:
    assert len(text) <= longest
    assert text.isprintable() or not text


def names(data: bytes) -> None:
    """Headers of a message, its request URI, and each value read as who, where and what."""
    message = data.decode("utf-8", "surrogateescape")
    _is_short(headers.request_user(message))
    headers.request_uri(message)
    for name, short in (("Contact", "m"), ("To", "t")):
        headers.header_value(message, name, short)
    for _, value in headers.header_fields(message):
        for entry in headers.split_list(value):
            _read(entry)
    _read(message)
    contacts_found = contacts.redirect_contacts(message, _SOURCE)
    assert len(contacts_found) <= contacts.MAX_CONTACTS
    for contact in contacts_found:
        _is_short(contact.user)
        _is_short(contact.host)


def _read(value: str) -> None:
    parsed = headers.parse_name_addr(value)
    _is_short(parsed.user)
    _is_short(parsed.display_name)
    _is_short(headers.parse_tag(value))
    _is_short(headers.uri_host_port(value))
    uri, _ = headers.split_name_addr(value)
    _is_short(headers.uri_user(uri))
    headers.uri_host(uri)
    reason = reason_header.parse_reason(value)
    if reason.cause is not None:
        assert 1 <= reason.cause.number <= 127
        _is_short(reason.cause.text)
    named = NameAddr("100", parsed.display_name)
    assert headers.parse_name_addr(headers.format_name_addr(named, "h")) == NameAddr(
        "100", " ".join([parsed.display_name])
    )


def shown(data: bytes) -> None:
    """A message as people may read it: no longer than it was and some, without control characters; a password in a
    URI and a digest's response, put in front, are not in it."""
    text = masking.mask_message(data)
    assert len(text) <= 4 * len(data) + 1_000
    assert not any(ord(c) < 32 or ord(c) == 127 for c in text if c not in "\t\n")
    first = b'INVITE sip:100:s3cr3t@h SIP/2.0\r\nAuthorization: Digest response="s3cr3t"\r\n'
    assert "s3cr3t" not in masking.mask_message(first + data.replace(b"s3cr3t", b""))
    message = SipMessage(0, False, "udp", "h:1", "h:2", "c", "f", "t", "INVITE", 1, 0, False, data)
    _is_short(message.summary, 200)
    _is_short(message._replace(status=200).summary, 200)


def digest_answer(data: bytes) -> None:
    """Credentials: only those with the right response to a nonce of ours are granted, and those once."""
    verifier = DigestVerifier(("SHA-256", "MD5"))
    nonce = dict(verifier.challenge(_SOURCE, 0.0))["WWW-Authenticate"].split('nonce="')[1].split('"')[0]
    authorization = data.decode("utf-8", "surrogateescape").replace(_NONCE, nonce)
    target = DigestTarget("INVITE", lambda uri: uri == "sip:100@h")
    assert verifier.verify(authorization, target, _CREDENTIALS, _SOURCE, "o", 1.0) in ("asked", "wrong", "blocked")
    given = digest.digest_parameters(authorization)
    if given is None or _RESPONSE not in given.values() or not given.keys() >= _NEEDED:
        return
    for algorithm in ("SHA-256", "MD5"):
        right = digest.digest_response(algorithm, "INVITE", _CREDENTIALS, given)
        outcome = verifier.verify(authorization.replace(_RESPONSE, right), target, _CREDENTIALS, _SOURCE, "o", 1.0)
        if outcome != "granted":
            continue
        assert given["nonce"] == nonce
        assert given["uri"] == "sip:100@h"
        assert given["username"] == _CREDENTIALS.user
        assert (
            verifier.verify(authorization.replace(_RESPONSE, right), target, _CREDENTIALS, _SOURCE, "o", 1.0) == "stale"
        )
        assert (
            verifier.verify(authorization.replace(_RESPONSE, right), target, _CREDENTIALS, "192.0.2.2", "o", 1.0)
            == "stale"
        )
        assert (
            verifier.verify(authorization.replace(_RESPONSE, right), target, _CREDENTIALS, _SOURCE, "o", 100.0)
            == "stale"
        )
        return
