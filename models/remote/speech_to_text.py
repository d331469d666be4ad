"""Remote speech to text (`/v1/audio/transcriptions`): completed turns, as second pass (`models.stt.two_pass`)."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from media.audio_port import Samples
from models.errors import RemoteModelError
from models.protocols import CostSource
from models.remote.client import RemoteModelClient, RequestBody
from models.remote.json_safety import parse_json, strip_unstorable
from models.remote.wav import encode_wav

MAX_RESPONSE_BYTES: Final = 256 * 1024
_MAX_TEXT: Final = 20_000
_PATH: Final = "/audio/transcriptions"


class RemoteTranscriber:
    """Transcribes completed turns. Hot words are not sent, because the API has only a prompt, which models repeat for
    silence."""

    cost_source: CostSource = "remote"

    def __init__(self, client: RemoteModelClient) -> None:
        self.name = client.model.name
        self._client = client

    async def transcribe(self, blocks: Sequence[Samples], rate: int, language: str | None) -> str:
        """The transcript of mono int16 audio at `rate` Hz; `language` is a BCP 47 tag or None. Raises
        `RemoteModelError`."""
        body = await asyncio.to_thread(self._request_body, blocks, rate, language)
        answer = parse_json(await self._client.fetch(_PATH, body, max_bytes=MAX_RESPONSE_BYTES))
        text = answer.get("text") if isinstance(answer, dict) else None
        if not isinstance(text, str) or len(text) > _MAX_TEXT:
            raise RemoteModelError("broken", f"{self.name} sends no text of what was said")
        return " ".join(strip_unstorable(text).split())

    def _request_body(self, blocks: Sequence[Samples], rate: int, language: str | None) -> RequestBody:
        fields = {"model": self._client.model.model, "response_format": "json"}
        if language is not None:
            fields["language"] = language.replace("_", "-").partition("-")[0].lower()
        texts = {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in self._client.model.with_extra(fields).items()
        }
        return multipart(texts, "file", "turn.wav", "audio/wav", encode_wav(np.concatenate(blocks), rate))


def multipart(fields: Mapping[str, str], file_field: str, filename: str, kind: str, content: bytes) -> RequestBody:
    """A multipart form with one file (RFC 7578)."""
    boundary = f"turn-{secrets.token_hex(16)}"
    parts = [_part(boundary, f'name="{name}"') + value.encode("utf-8", "replace") for name, value in fields.items()]
    disposition = f'name="{file_field}"; filename="{filename}"'
    parts.append(_part(boundary, disposition, f"\r\nContent-Type: {kind}") + content)
    return RequestBody(
        b"\r\n".join((*parts, f"--{boundary}--\r\n".encode())), f"multipart/form-data; boundary={boundary}"
    )


def _part(boundary: str, names: str, more: str = "") -> bytes:
    return f"--{boundary}\r\nContent-Disposition: form-data; {names}{more}\r\n\r\n".encode()
