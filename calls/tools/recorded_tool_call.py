"""A tool call as it is kept with the call: its arguments and its result, without secrets, and bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

from calls.tools.http_response import MASK, mask_secrets_in_json
from calls.tools.secret_detection import names_credential

MAX_ARGUMENTS: Final = 4_000
"""Characters of the arguments as JSON; longer ones are not kept."""
MAX_RESULT: Final = 2_000
"""Characters of a result; a longer one is cut."""
_CUT: Final = "…"
_LAST_NUMBER: Final = re.compile(r"[\d .\-]*\d")
"""The number at the end of a text, backwards."""
_STRING: Final = r'"(?:[^"\\]|\\.)*"?'
_MEMBER: Final = re.compile(
    rf'(?<!\\)"((?:[^"\\]|\\.)*)"\s*:\s*({_STRING}|\[(?:[^"\[\]{{}}]|{_STRING})*\]?|[^\s,}}\]\[{{"]+)'
)
"""A member of a JSON object whose value is no object and no array of such; the text may end within the value. It begins
with a quote that is not escaped: of many escaped ones each would be read to the end of the text."""


def recorded_arguments(arguments: str, secrets: Collection[str]) -> dict[str, Any] | None:
    """Returns the arguments, as the language model wrote them, with `secrets` and the values of credentials masked.
    None if they are no JSON object, or too long."""
    try:
        parsed = json.loads(arguments or "{}", parse_constant=_reject)
        if not isinstance(parsed, dict):
            return None
        masked = mask_secrets_in_json(_without_credentials(parsed), secrets)
        text = _encodable(json.dumps(masked, ensure_ascii=False, allow_nan=False))  # 1e999 is read as infinity
        kept: dict[str, Any] | None = json.loads(text) if len(text) <= MAX_ARGUMENTS else None
    except (ValueError, RecursionError):
        return None
    return kept


def recorded_result(content: str) -> str:
    """Returns the result that the language model got, or its beginning, with the values of credentials in JSON masked;
    the secrets of the request are masked already. A number in which it is cut is left out, because a part of one could
    not be redacted."""
    text = _encodable(_result_without_credentials(content))
    if len(text) <= MAX_RESULT:
        return text
    kept = text[: MAX_RESULT - len(_CUT)]
    number = _LAST_NUMBER.match(kept[::-1])
    return kept[: len(kept) - (number.end() if number else 0)] + _CUT


def _result_without_credentials(content: str) -> str:
    try:
        value = json.loads(content)
        return json.dumps(_without_credentials(value), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return _text_without_credentials(content)  # the beginning of a long one, or no JSON


def _text_without_credentials(text: str) -> str:
    return _MEMBER.sub(_mask_member, text)


def _mask_member(member: re.Match[str]) -> str:
    """Masks the value of a member of a JSON object if its name is that of a credential."""
    name, value = member.groups()
    if names_credential(name):
        return f'"{name}":"{MASK}"'
    return member[0].removesuffix(value) + _text_without_credentials(value) if value.startswith("[") else member[0]


def _without_credentials(value: Any) -> Any:
    match value:
        case Mapping():
            return {
                name: MASK if names_credential(name) and inner not in (None, "") else _without_credentials(inner)
                for name, inner in value.items()
            }
        case list():
            return [_without_credentials(inner) for inner in value]
        case str():  # it may be JSON, such as a body in a body
            return _text_without_credentials(value)
        case _:
            return value


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _encodable(text: str) -> str:
    """Returns the text with lone surrogates, which JSON can escape and UTF-8 cannot encode, replaced."""
    return text.encode("utf-8", "replace").decode()
