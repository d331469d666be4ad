"""Speech to text behind `/v1/audio/transcriptions`: whole turns, as a second pass (`models.stt.two_pass`)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from media.audio_port import Samples
from models.errors import RemoteModelError
from models.protocols import Measured
from models.remote.client import RemoteModelClient, RequestBody
from models.remote.json_safety import parse_json, strip_unstorable
from models.remote.wav import encode_wav

MOST_BYTES: Final = 256 * 1024
_MOST_TEXT: Final = 20_000
_PATH: Final = "/audio/transcriptions"


class RemoteTranscriber:
    """Hears whole turns. Hot words are not sent: the protocol has only a prompt, which models repeat when they hear
    nothing."""

    measured: Measured = "on another machine"

    def __init__(self, endpoint: RemoteModelClient) -> None:
        self.name = endpoint.model.name
        self._endpoint = endpoint

    async def transcribe(self, blocks: Sequence[Samples], rate: int, language: str | None) -> str:
        """The text of mono int16 sound at `rate` Hz; `language` is a BCP 47 tag or None. Raises `RemoteModelError`."""
        body = await asyncio.to_thread(self._body, blocks, rate, language)
        answer = parse_json(await self._endpoint.fetch(_PATH, body, max_bytes=MOST_BYTES))
        text = answer.get("text") if isinstance(answer, dict) else None
        if not isinstance(text, str) or len(text) > _MOST_TEXT:
            raise RemoteModelError("broken", f"{self.name} sends no text of what was said")
        return " ".join(strip_unstorable(text).split())

    def _body(self, blocks: Sequence[Samples], rate: int, language: str | None) -> RequestBody:
        fields = {"model": self._endpoint.model.model, "response_format": "json"}
        if language is not None:
            fields["language"] = language.replace("_", "-").partition("-")[0].lower()
        extra = {
            name: value if isinstance(value, str) else str(value) for name, value in self._endpoint.model.extra.items()
        }
        return multipart({**fields, **extra}, "file", "turn.wav", "audio/wav", encode_wav(np.concatenate(blocks), rate))


def multipart(fields: Mapping[str, str], file_field: str, filename: str, kind: str, content: bytes) -> RequestBody:
    """A form with one file (RFC 7578)."""
    boundary = f"turn-{secrets.token_hex(16)}"
    parts = [_part(boundary, f'name="{name}"') + value.encode("utf-8", "replace") for name, value in fields.items()]
    named = f'name="{file_field}"; filename="{filename}"'
    parts.append(_part(boundary, named, f"\r\nContent-Type: {kind}") + content)
    return RequestBody(
        b"\r\n".join((*parts, f"--{boundary}--\r\n".encode())), f"multipart/form-data; boundary={boundary}"
    )


def _part(boundary: str, names: str, more: str = "") -> bytes:
    return f"--{boundary}\r\nContent-Disposition: form-data; {names}{more}\r\n\r\n".encode()
