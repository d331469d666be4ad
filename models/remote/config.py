"""The configuration of a remote model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import urlsplit

RemoteKind = Literal["llm", "stt", "tts", "embedding"]
KINDS: Final[tuple[RemoteKind, ...]] = ("llm", "stt", "tts", "embedding")
_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]+")


@dataclass(frozen=True)
class RemoteTimeouts:
    """Timeouts in seconds: for the connection, for the first token (with the connection and all retries), between
    tokens, and for the complete response."""

    connect_s: float = 1.0
    first_word_s: float = 4.0
    between_words_s: float = 3.0
    total_s: float = 60.0


DEFAULT_TIMEOUTS: Final[Mapping[RemoteKind, RemoteTimeouts]] = {
    "llm": RemoteTimeouts(),
    "stt": RemoteTimeouts(first_word_s=1.5, total_s=1.5),
    "tts": RemoteTimeouts(between_words_s=2.0, total_s=15.0),
    "embedding": RemoteTimeouts(total_s=30.0),
}


@dataclass(frozen=True)
class RemoteVoice:
    """A voice by the server's name; `language` is a BCP 47 tag, None for any."""

    name: str
    language: str | None = None


@dataclass(frozen=True)
class RemoteModel:
    """A remote model. `model`: the server's name; `name`: the local one. `context_length` in tokens. `extra`: JSON
    fields that override those of each request (`with_extra`). `base_url`: as returned by `base_url_of`."""

    name: str
    kind: RemoteKind
    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    timeouts: RemoteTimeouts = RemoteTimeouts()
    context_length: int = 8192
    voices: tuple[RemoteVoice, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def with_extra(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A request's fields with those of `extra` in their place; a null removes a field."""
        return {name: value for name, value in {**fields, **self.extra}.items() if value is not None}


def base_url_of(url: str) -> str:
    """The URL to which paths as `/chat/completions` are appended, without a trailing slash; one without a path gets
    `/v1`. Raises `ValueError` with the expected form, without the URL, which may hold a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError("the address must be http(s)://host[:port]/v1") from error
    if "@" in parts.netloc:
        raise ValueError("the address must have no user and no password: give a key for the server instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or not _HOST.fullmatch(parts.hostname) or port == 0:
        raise ValueError("the address must be http(s)://host[:port]/v1")
    if parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise ValueError("the address must be http(s)://host[:port]/v1, without anything behind the path")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"
