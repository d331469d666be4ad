"""What of a tool's request nobody may read in an answer: credentials, and nothing that answers are made of."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from calls.call_record.context_variables import PLACEHOLDER, ContextValue, as_text

_CREDENTIAL: Final = re.compile(
    r"authori[sz]ation|authenticat|(?<![a-z])auth(?![a-z])|cookie|key(?!word|board)|token|secret|passw|passphrase|pwd"
    r"|signature|credential|session",
    re.IGNORECASE,
)
"""Names of headers and variables that hold one."""
_PLAIN_HEADERS: Final = re.compile(r"accept.*|content-.*|user-agent|cache-control|date", re.IGNORECASE)
"""Headers that hold nothing to hide."""
_PLAIN_VARIABLES: Final = ("call_id", "customer_number", "phone_number")
_SHORTEST_SECRET: Final = 4
"""Characters. What is shorter would be found in any text."""
_SHORTEST_WORD: Final = 8
"""Characters of a word in a credential (the token behind `Bearer`) that is hidden by itself too, and of what looks like
a key in another header."""
_LONGEST_PLAIN: Final = 16
"""Characters of a word in another header from which on it counts as a key, whatever is in it."""
_LETTER_AND_DIGIT: Final = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])")
_BASIC: Final = re.compile(r"basic\s+(\S+)\s*", re.IGNORECASE)


def request_secrets(headers: Sequence[tuple[str, str]], values: Mapping[str, ContextValue]) -> frozenset[str]:
    """The texts to hide of `headers` (names and values that may hold `{{variables}}`). Of one whose name says that it
    holds a credential: the value, its longer words, each cookie, a Basic pair. Of others: what a variable with such a
    name stands for, and words that look like keys. Never the call's own numbers, nor what is short."""
    found: set[str] = set()
    for name, template in headers:
        if _CREDENTIAL.search(name):
            value = _filled(template, values)
            found.update(_of_credential(value))
            if "cookie" in name.lower():
                found.update(each.partition("=")[2].strip(' "') for each in value.split(";"))
        elif not _PLAIN_HEADERS.fullmatch(name):
            found.update(_of_others(template, values))
    plain = {as_text(values[name]) for name in _PLAIN_VARIABLES if name in values}
    return frozenset(each for each in found if len(each) >= _SHORTEST_SECRET) - plain


def basic_auth_secrets(pair: str, *forms: str) -> frozenset[str]:
    """`user:password`, as it is, as a header has it (RFC 7617) and in other `forms`, and the password by itself."""
    _, _, password = pair.partition(":")
    coded = base64.b64encode(pair.encode("utf-8", "replace")).decode()
    return frozenset(each for each in (pair, password, coded, *forms) if len(each) >= _SHORTEST_SECRET)


def _filled(template: str, values: Mapping[str, ContextValue]) -> str:
    return PLACEHOLDER.sub(lambda match: as_text(values.get(match.group(1), "")), template)


def _of_credential(value: str) -> Iterator[str]:
    yield value
    yield value.strip()
    yield from (word for word in value.split() if len(word) >= _SHORTEST_WORD)
    if basic := _BASIC.fullmatch(value):
        with suppress(ValueError):  # no base64, or not UTF-8: then there is no pair
            yield from basic_auth_secrets(base64.b64decode(basic[1], validate=True).decode())


def _of_others(template: str, values: Mapping[str, ContextValue]) -> Iterator[str]:
    for name in PLACEHOLDER.findall(template):
        if _CREDENTIAL.search(name) and name in values:
            yield from _of_credential(as_text(values[name]))
    for word in PLACEHOLDER.sub(" ", template).split():
        if len(word) >= (_SHORTEST_WORD if _LETTER_AND_DIGIT.match(word) else _LONGEST_PLAIN):
            yield word
