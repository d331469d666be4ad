"""What a tool's server said, as text for a language model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, quote_plus

from calls.egress.client import HttpResponse
from calls.tools.arguments import walk
from storage.document_reader.base.blocks import tidy
from storage.document_reader.base.media_types import Kind, charset_of, kind_of
from storage.document_reader.formats.html import blocks_from_html, declared_charset

MAX_CHARACTERS: Final = 8_000
"""Characters that the model gets of an answer."""
MAX_ERROR_CHARACTERS: Final = 500
"""Characters that it gets of an answer that is an error."""
TRUNCATED: Final = "\n[The answer is longer; this is its beginning.]"
MASK: Final = "[hidden]"
MAX_DEPTH: Final = 64
"""Objects and arrays of an answer inside one another; more is no answer to a question, and a strain to read."""
TOO_DEEP: Final = "(an answer that is nested too deeply to be read)"
_NOT_TEXT: Final = re.compile("(image|audio|video|font)/", re.IGNORECASE)
_FAULTS: Final = 0.02
"""Share of characters up to which text may be damaged."""
_CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_HALVES: Final = re.compile("[\ud800-\udfff]")
"""JSON can name them; nobody can write them."""


def response_text(answer: HttpResponse, hidden: Iterable[str]) -> str:
    """The body: JSON without the spaces between its values, of HTML what a reader sees, other text as it is; without
    the `hidden` texts; cut. What is no JSON takes some milliseconds of a processor: not for the event loop."""
    if not answer.body:
        return ""
    media_type = answer.headers.get("Content-Type", "")
    encoding = answer.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        return f"(an answer in an encoding that is not read: {tidy(encoding)[:40]})"
    text = _read(answer.body, media_type, _forms(hidden))
    if text is None:
        return f"(no text: {len(answer.body)} bytes of type {tidy(media_type)[:80] or 'unknown'})"
    text = _HALVES.sub("\ufffd", text)
    if len(text) > MAX_CHARACTERS or answer.truncated:
        return text[:MAX_CHARACTERS] + TRUNCATED
    return text


def mask_secrets(text: str, hidden: Iterable[str]) -> str:
    """`text` without the `hidden` texts, also as they stand in JSON and in URLs."""
    return _without(text, _forms(hidden))


def _forms(hidden: Iterable[str]) -> list[str]:
    """As the texts may be written; the longest go first, they may hold others."""
    forms: set[str] = set()
    for secret in hidden:
        forms.update((secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]))
        coded = quote(secret, safe="", errors="replace")
        forms.update((coded, quote(secret, errors="replace"), _PERCENT.sub(lambda code: code[0].lower(), coded)))
        forms.add(quote_plus(secret, errors="replace"))
    return sorted(forms, key=len, reverse=True)


def _without(text: str, forms: Sequence[str]) -> str:
    for form in forms:
        text = text.replace(form, MASK)
    return text


def _inside(value: Any, forms: Sequence[str]) -> Any:
    """JSON with nothing of `forms` in its texts and names, nor as one of its numbers; it stays JSON."""
    match value:
        case str():
            return _without(value, forms)
        case dict():
            return {_without(name, forms): _inside(inner, forms) for name, inner in value.items()}
        case list():
            return [_inside(inner, forms) for inner in value]
        case bool():
            return value
        case int() | float() if json.dumps(value) in forms:
            return MASK
        case _:
            return value


def _read(body: bytes, media_type: str, forms: Sequence[str]) -> str | None:
    """Without the `forms`. None: it is no text."""
    html = kind_of(media_type) is Kind.HTML
    text = _decoded(body, charset_of(media_type) or (declared_charset(body) if html else None))
    if _NOT_TEXT.match(media_type) or len(_CONTROLS.findall(text)) > _FAULTS * len(text) + 1:
        return None
    if html:
        return _without(tidy("\n".join(block.text for block in blocks_from_html(text))), forms)
    try:
        value = json.loads(text)
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        return _without(tidy(text), forms)
    if any(depth > MAX_DEPTH for _, depth in walk(value)):
        return TOO_DEEP
    return json.dumps(_inside(value, forms), ensure_ascii=False, separators=(",", ":"))


def _decoded(body: bytes, charset: str | None) -> str:
    """As it says that it is encoded, else as UTF-8, of which a cut may have damaged the end, else as Windows does."""
    if charset is not None:
        with suppress(LookupError, ValueError):  # a name that is none, or bytes that are not in it
            return body.decode(charset)
    text = body.decode("utf-8", "replace")
    return text if text.count("\ufffd") <= _FAULTS * len(text) else body.decode("cp1252", "replace")
