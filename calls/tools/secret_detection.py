"""Detection of the secrets in a tool's request, which are masked in its response: credentials, not ordinary values."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from calls.call_record.context_variables import PLACEHOLDER, ContextValue, as_text

_CREDENTIAL: Final = re.compile(
    r"authori[sz]ation|authenticat|(?<![a-z])auth(?![a-z])|cookie|key(?!word|board)|token|secret|passw|passphrase|pwd"
    r"|signature|credential|session|bearer|security.?code|(?<![a-z])(?:pin|cvv2?|cvc2?|otp|totp)(?![a-z])|pin.?code",
    re.IGNORECASE,
)
"""Names of headers and variables that hold a credential."""
_PLAIN_HEADERS: Final = re.compile(r"accept.*|content-.*|user-agent|cache-control|date", re.IGNORECASE)
"""Names of headers without secrets."""
_PLAIN_VARIABLES: Final = ("call_id", "customer_number", "phone_number")
_MIN_SECRET_LENGTH: Final = 4
"""Characters; shorter texts occur in any response."""
_MIN_WORD_LENGTH: Final = 8
"""Characters of a word in a credential (the token after `Bearer`) that is also masked by itself, and of a word with
letters and digits in another header, which counts as a key."""
_MIN_KEY_LENGTH: Final = 16
"""Characters of any other word in another header that counts as a key."""
_LETTER_AND_DIGIT: Final = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])")
_BASIC: Final = re.compile(r"basic\s+(\S+)\s*", re.IGNORECASE)


def names_credential(name: str) -> bool:
    """True for the name of a header, a variable or a parameter that holds a credential."""
    return _CREDENTIAL.search(name) is not None


def request_secrets(headers: Sequence[tuple[str, str]], values: Mapping[str, ContextValue]) -> frozenset[str]:
    """Returns the secrets in `headers` (names, and values that may have `{{variables}}`). Of a header whose name is
    that of a credential: the value, its longer words, each cookie, a Basic pair. Of others: the value of a variable
    with such a name, and words that look like keys. Never the call's own numbers, nor short texts."""
    secrets: set[str] = set()
    for name, template in headers:
        if _CREDENTIAL.search(name):
            value = _filled(template, values)
            secrets.update(_credential_secrets(value))
            if "cookie" in name.lower():
                secrets.update(each.partition("=")[2].strip(' "') for each in value.split(";"))
        elif not _PLAIN_HEADERS.fullmatch(name):
            secrets.update(_other_secrets(template, values))
    plain = {as_text(values[name]) for name in _PLAIN_VARIABLES if name in values}
    return frozenset(each for each in secrets if len(each) >= _MIN_SECRET_LENGTH) - plain


def basic_auth_secrets(pair: str, *forms: str) -> frozenset[str]:
    """Returns `user:password`, its form in a header (RFC 7617), other `forms`, and the password by itself."""
    _, _, password = pair.partition(":")
    coded = base64.b64encode(pair.encode("utf-8", "replace")).decode()
    return frozenset(each for each in (pair, password, coded, *forms) if len(each) >= _MIN_SECRET_LENGTH)


def _filled(template: str, values: Mapping[str, ContextValue]) -> str:
    return PLACEHOLDER.sub(lambda match: as_text(values.get(match.group(1), "")), template)


def _credential_secrets(value: str) -> Iterator[str]:
    yield value
    yield value.strip()
    yield from (word for word in value.split() if len(word) >= _MIN_WORD_LENGTH)
    if basic := _BASIC.fullmatch(value):
        with suppress(ValueError):  # no base64, or not UTF-8: then there is no pair
            yield from basic_auth_secrets(base64.b64decode(basic[1], validate=True).decode())


def _other_secrets(template: str, values: Mapping[str, ContextValue]) -> Iterator[str]:
    for name in PLACEHOLDER.findall(template):
        if _CREDENTIAL.search(name) and name in values:
            yield from _credential_secrets(as_text(values[name]))
    for word in PLACEHOLDER.sub(" ", template).split():
        if len(word) >= (_MIN_WORD_LENGTH if _LETTER_AND_DIGIT.match(word) else _MIN_KEY_LENGTH):
            yield word
