"""A tool call as it is kept with the call: its arguments and its result, without secrets, and bounded."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

from calls.tools.http_response import MASK, mask_secrets_in_json
from calls.tools.secret_detection import names_credential

MAX_ARGUMENTS: Final = 4_000
"""Characters of the arguments as JSON; longer ones are not kept."""
MAX_RESULT: Final = 2_000
"""Characters of a result; a longer one is cut."""
_CUT: Final = "…"


def recorded_arguments(arguments: str, secrets: Collection[str]) -> dict[str, Any] | None:
    """Returns the arguments, as the language model wrote them, with `secrets` and the values of credentials masked.
    None if they are no JSON object, or too long."""
    try:
        parsed = json.loads(arguments or "{}", parse_constant=_reject)
        if not isinstance(parsed, dict):
            return None
        masked = mask_secrets_in_json(_without_credentials(parsed), secrets)
        text = _encodable(json.dumps(masked, ensure_ascii=False))
        kept: dict[str, Any] | None = json.loads(text) if len(text) <= MAX_ARGUMENTS else None
    except (ValueError, RecursionError):
        return None
    return kept


def recorded_result(content: str) -> str:
    """Returns the result that the language model got, or its beginning. Secrets are masked in it already."""
    text = _encodable(content)
    return text if len(text) <= MAX_RESULT else text[: MAX_RESULT - len(_CUT)] + _CUT


def _without_credentials(value: Any) -> Any:
    match value:
        case Mapping():
            return {
                name: MASK if names_credential(name) and inner not in (None, "") else _without_credentials(inner)
                for name, inner in value.items()
            }
        case list():
            return [_without_credentials(inner) for inner in value]
        case _:
            return value


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _encodable(text: str) -> str:
    """Returns the text with lone surrogates, which JSON can escape and UTF-8 cannot encode, replaced."""
    return text.encode("utf-8", "replace").decode()
