"""An HTTP client for tests without a network."""

from __future__ import annotations

import io
from typing import Any

import soundfile
from multidict import CIMultiDict, CIMultiDictProxy

from calls.http_egress.client import HttpEgressClient, HttpResponse
from tests.sipcore.tones import tone


def music_file(seconds: float = 2.0, hertz: float = 700, kind: str = "WAV", codec: str = "PCM_16") -> bytes:
    """A file with a tone."""
    data = io.BytesIO()
    soundfile.write(data, tone(16000, hertz, seconds), 16000, format=kind, subtype=codec)
    return data.getvalue()


class MusicAtEveryUrl(HttpEgressClient):
    """A client that gets the same two seconds of music from every URL, without a connection."""

    def __init__(self) -> None:
        self._response = HttpResponse(200, CIMultiDictProxy(CIMultiDict()), music_file(), False)

    async def request(self, *_: Any, **__: Any) -> HttpResponse:
        """The music."""
        return self._response
