"""The response of a tool's server as text for a language model, with the request's secrets masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, quote_plus

from calls.http_egress.client import HttpResponse
from calls.tools.arguments import walk_json
from storage.document_reader.base.blocks import normalize
from storage.document_reader.base.media_types import DocumentFormat, charset_of, format_of
from storage.document_reader.formats.html import blocks_from_html, declared_charset

MAX_CHARACTERS: Final = 8_000
"""Characters of a response that the model gets."""
MAX_ERROR_CHARACTERS: Final = 500
"""Characters of an error response that the model gets."""
TRUNCATED: Final = "\n[The answer is longer; this is its beginning.]"
MASK: Final = "[hidden]"
MAX_DEPTH: Final = 64
"""Levels of nested objects and arrays; a deeper response is not read, because that is slow and of no use."""
TOO_DEEP: Final = "(an answer that is nested too deeply to be read)"
_NOT_TEXT: Final = re.compile("(image|audio|video|font)/", re.IGNORECASE)
_MAX_UNDECODABLE: Final = 0.02
"""Share of undecodable characters up to which bytes count as text."""
_CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_LONE_SURROGATES: Final = re.compile("[\ud800-\udfff]")
"""JSON can escape lone surrogates, UTF-8 cannot encode them."""


def response_text(response: HttpResponse, secrets: Iterable[str]) -> str:
    """Returns the body, truncated, with `secrets` masked: JSON without whitespace between its values, the visible text
    of HTML, other text unchanged. Not for the event loop, because a body that is no JSON takes some milliseconds."""
    if not response.body:
        return ""
    media_type = response.headers.get("Content-Type", "")
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        return f"(an answer in an encoding that is not read: {normalize(encoding)[:40]})"
    text = _to_text(response.body, media_type, _forms(secrets))
    if text is None:
        return f"(no text: {len(response.body)} bytes of type {normalize(media_type)[:80] or 'unknown'})"
    text = _LONE_SURROGATES.sub("\ufffd", text)
    if len(text) > MAX_CHARACTERS or response.truncated:
        return text[:MAX_CHARACTERS] + TRUNCATED
    return text


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """Returns `text` with the `secrets` masked, also in the forms that they have in JSON and URLs."""
    return _mask(text, _forms(secrets))


def mask_secrets_in_json(value: Any, secrets: Iterable[str]) -> Any:
    """Returns a JSON value with the `secrets` masked in its strings, names and numbers."""
    return _mask_json(value, _forms(secrets))


def _forms(secrets: Iterable[str]) -> list[str]:
    """Returns the encoded forms of secrets; the longest first, because they may contain others."""
    forms: set[str] = set()
    for secret in secrets:
        forms.update((secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]))
        coded = quote(secret, safe="", errors="replace")
        forms.update((coded, quote(secret, errors="replace"), _PERCENT.sub(lambda code: code[0].lower(), coded)))
        forms.add(quote_plus(secret, errors="replace"))
    return sorted(forms, key=len, reverse=True)


def _mask(text: str, forms: Sequence[str]) -> str:
    for form in forms:
        text = text.replace(form, MASK)
    return text


def _mask_json(value: Any, forms: Sequence[str]) -> Any:
    """Returns a JSON value with `forms` masked in its strings, names and numbers; it stays JSON."""
    match value:
        case str():
            return _mask(value, forms)
        case dict():
            return {_mask(name, forms): _mask_json(inner, forms) for name, inner in value.items()}
        case list():
            return [_mask_json(inner, forms) for inner in value]
        case bool():
            return value
        case int() | float() if json.dumps(value) in forms:
            return MASK
        case _:
            return value


def _to_text(body: bytes, media_type: str, forms: Sequence[str]) -> str | None:
    """Returns the text with `forms` masked; None if the body is no text."""
    html = format_of(media_type) is DocumentFormat.HTML
    text = _decode(body, charset_of(media_type) or (declared_charset(body) if html else None))
    if _NOT_TEXT.match(media_type) or len(_CONTROLS.findall(text)) > _MAX_UNDECODABLE * len(text) + 1:
        return None
    if html:
        return _mask(normalize("\n".join(block.text for block in blocks_from_html(text))), forms)
    try:
        value = json.loads(text)
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        return _mask(normalize(text), forms)
    if any(depth > MAX_DEPTH for _, depth in walk_json(value)):
        return TOO_DEEP
    return json.dumps(_mask_json(value, forms), ensure_ascii=False, separators=(",", ":"))


def _decode(body: bytes, charset: str | None) -> str:
    """Returns the body decoded by the declared charset, else as UTF-8, whose last character may be incomplete, else as
    Windows-1252."""
    if charset is not None:
        with suppress(LookupError, ValueError):  # an unknown charset, or bytes that it does not have
            return body.decode(charset)
    text = body.decode("utf-8", "replace")
    return text if text.count("\ufffd") <= _MAX_UNDECODABLE * len(text) else body.decode("cp1252", "replace")
