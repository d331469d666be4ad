"""Fuzz checks of SIP messages of peers: parsed values are short and printable, and no secret is displayed."""

from __future__ import annotations

from typing import Final

from sipcore.messages import contact as contacts
from sipcore.messages import headers, masking, reason_header
from sipcore.messages.headers import NameAddr
from sipcore.security import digest
from sipcore.security.digest import Credentials, DigestTarget, DigestVerifier
from sipcore.trace.sip_message import SipMessage

_MAX_LENGTH: Final = 128
_CREDENTIALS: Final = Credentials("ann", "s3cret")
_SOURCE: Final = "192.0.2.1"
_NONCE: Final = "NONCE"
"""Placeholder in an input for a valid nonce."""
_RESPONSE: Final = "RESPONSE"
"""Placeholder in an input for the correct response."""
_RESPONSE_PARAMETERS: Final = frozenset(("realm", "nonce", "nc", "cnonce", "qop"))
"""The parameters from which a response is computed."""


def _check_short(text: str, max_length: int = _MAX_LENGTH) -> None:
    assert len(text) <= max_length
    assert text.isprintable() or not text


def header_values(data: bytes) -> None:
    """The headers of a message, its request URI, and each value parsed as name-addr, tag, URI and reason."""
    message = data.decode("utf-8", "surrogateescape")
    _check_short(headers.request_user(message))
    headers.request_uri(message)
    for name, short in (("Contact", "m"), ("To", "t")):
        headers.header_value(message, name, short)
    for _, value in headers.header_fields(message):
        for entry in headers.split_list(value):
            _check_value(entry)
    _check_value(message)
    contacts_found = contacts.redirect_contacts(message, _SOURCE)
    assert len(contacts_found) <= contacts.MAX_CONTACTS
    for contact in contacts_found:
        _check_short(contact.user)
        _check_short(contact.host)


def _check_value(value: str) -> None:
    parsed = headers.parse_name_addr(value)
    _check_short(parsed.user)
    _check_short(parsed.display_name)
    _check_short(headers.parse_tag(value))
    _check_short(headers.uri_host_port(value))
    uri, _ = headers.split_name_addr(value)
    _check_short(headers.uri_user(uri))
    headers.uri_host(uri)
    reason = reason_header.parse_reason(value)
    if reason.cause is not None:
        assert 1 <= reason.cause.number <= 127
        _check_short(reason.cause.text)
    named = NameAddr("100", parsed.display_name)
    assert headers.parse_name_addr(headers.format_name_addr(named, "h")) == NameAddr(
        "100", " ".join([parsed.display_name])
    )


def masked_message(data: bytes) -> None:
    """The display of a message: bounded length, no control characters, and neither a password in a URI nor a digest
    response."""
    text = masking.mask_message(data)
    assert len(text) <= 4 * len(data) + 1_000
    assert not any(ord(c) < 32 or ord(c) == 127 for c in text if c not in "\t\n")
    first = b'INVITE sip:100:s3cr3t@h SIP/2.0\r\nAuthorization: Digest response="s3cr3t"\r\n'
    assert "s3cr3t" not in masking.mask_message(first + data.replace(b"s3cr3t", b""))
    message = SipMessage(0, False, "udp", "h:1", "h:2", "c", "f", "t", "INVITE", 1, 0, False, data)
    _check_short(message.summary, 200)
    _check_short(message._replace(status=200).summary, 200)


def digest_credentials(data: bytes) -> None:
    """Digest credentials: they are granted only with the correct response to a valid nonce, and only once."""
    verifier = DigestVerifier(("SHA-256", "MD5"))
    nonce = dict(verifier.challenge(_SOURCE, 0.0))["WWW-Authenticate"].split('nonce="')[1].split('"')[0]
    authorization = data.decode("utf-8", "surrogateescape").replace(_NONCE, nonce)
    target = DigestTarget("INVITE", lambda uri: uri == "sip:100@h")
    assert verifier.verify(authorization, target, _CREDENTIALS, _SOURCE, "o", 1.0) in ("asked", "wrong", "blocked")
    parameters = digest.digest_parameters(authorization)
    if parameters is None or _RESPONSE not in parameters.values() or not parameters.keys() >= _RESPONSE_PARAMETERS:
        return
    for algorithm in ("SHA-256", "MD5"):
        response = digest.digest_response(algorithm, "INVITE", _CREDENTIALS, parameters)
        outcome = verifier.verify(authorization.replace(_RESPONSE, response), target, _CREDENTIALS, _SOURCE, "o", 1.0)
        if outcome != "granted":
            continue
        assert parameters["nonce"] == nonce
        assert parameters["uri"] == "sip:100@h"
        assert parameters["username"] == _CREDENTIALS.user
        assert (
            verifier.verify(authorization.replace(_RESPONSE, response), target, _CREDENTIALS, _SOURCE, "o", 1.0)
            == "stale"
        )
        assert (
            verifier.verify(authorization.replace(_RESPONSE, response), target, _CREDENTIALS, "192.0.2.2", "o", 1.0)
            == "stale"
        )
        assert (
            verifier.verify(authorization.replace(_RESPONSE, response), target, _CREDENTIALS, _SOURCE, "o", 100.0)
            == "stale"
        )
        return
