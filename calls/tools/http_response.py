"""Converts the response of a tool's server to text for a language model, without the request's secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, quote_plus

from calls.egress.client import HttpResponse
from calls.tools.arguments import walk
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
"""Levels of nested objects and arrays; a deeper response is of no use, and slow to read."""
TOO_DEEP: Final = "(an answer that is nested too deeply to be read)"
_NOT_TEXT: Final = re.compile("(image|audio|video|font)/", re.IGNORECASE)
_MAX_DAMAGED: Final = 0.02
"""The share of damaged characters up to which bytes count as text."""
_CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_LONE_SURROGATES: Final = re.compile("[\ud800-\udfff]")
"""Lone surrogates: JSON can escape them, UTF-8 cannot encode them."""


def response_text(answer: HttpResponse, secrets: Iterable[str]) -> str:
    """The body: JSON without whitespace between its values, the visible text of HTML, other text as it is; `secrets`
    masked; truncated. A body that is no JSON takes some milliseconds of a processor: not for the event loop."""
    if not answer.body:
        return ""
    media_type = answer.headers.get("Content-Type", "")
    encoding = answer.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        return f"(an answer in an encoding that is not read: {normalize(encoding)[:40]})"
    text = _to_text(answer.body, media_type, _forms(secrets))
    if text is None:
        return f"(no text: {len(answer.body)} bytes of type {normalize(media_type)[:80] or 'unknown'})"
    text = _LONE_SURROGATES.sub("\ufffd", text)
    if len(text) > MAX_CHARACTERS or answer.truncated:
        return text[:MAX_CHARACTERS] + TRUNCATED
    return text


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """`text` with the `secrets` masked, also as they are written in JSON and in URLs."""
    return _mask(text, _forms(secrets))


def _forms(secrets: Iterable[str]) -> list[str]:
    """The ways in which secrets may be written; the longest first, because they may contain others."""
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
    """A JSON value with `forms` masked in its strings, names and numbers; it stays JSON."""
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
    """The text, `forms` masked; None when it is no text."""
    html = format_of(media_type) is DocumentFormat.HTML
    text = _decode(body, charset_of(media_type) or (declared_charset(body) if html else None))
    if _NOT_TEXT.match(media_type) or len(_CONTROLS.findall(text)) > _MAX_DAMAGED * len(text) + 1:
        return None
    if html:
        return _mask(normalize("\n".join(block.text for block in blocks_from_html(text))), forms)
    try:
        value = json.loads(text)
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        return _mask(normalize(text), forms)
    if any(depth > MAX_DEPTH for _, depth in walk(value)):
        return TOO_DEEP
    return json.dumps(_mask_json(value, forms), ensure_ascii=False, separators=(",", ":"))


def _decode(body: bytes, charset: str | None) -> str:
    """Decoded by the declared charset, else as UTF-8, of which a cut may have damaged the end, else as Windows-1252."""
    if charset is not None:
        with suppress(LookupError, ValueError):  # a name that is none, or bytes that are not in it
            return body.decode(charset)
    text = body.decode("utf-8", "replace")
    return text if text.count("\ufffd") <= _MAX_DAMAGED * len(text) else body.decode("cp1252", "replace")
