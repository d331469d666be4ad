"""Background sounds, and the body that uploads one."""

from __future__ import annotations

import io
import math
import struct
import wave
from base64 import b64encode
from typing import Any, Final

from tests.contract.kinds import Flag, Form, Id, Real, Text, Time, Whole
from tests.contract.table import Field, Table


def _beep() -> bytes:
    """Half a second of 440 Hz as a WAV file."""
    samples = [round(9000 * math.sin(2 * math.pi * 440 * n / 8000)) for n in range(4000)]
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return file.getvalue()


SOUND: Final = _beep()
NO_SOUND: Final = {"a sound": (b64encode(SOUND).decode(), b64encode(bytes(len(SOUND))).decode())}
"""As long as the sound, so that nothing but its content is wrong."""


def _least() -> dict[str, Any]:
    return {
        "name": "Beep",
        "filename": "beep.wav",
        "mimeType": "audio/wav",
        "fileSize": len(SOUND),
        "fileBase64": b64encode(SOUND).decode(),
    }


SOUNDS: Final = Table(
    noun="Background sound",
    path="/background-sounds",
    fields=(
        Field("name", Text(1, 255), required=True),
        Field("description", Text(), ""),
        Field("filename", Text(1, 255), required=True, secret=True),
        Field(
            "mimeType",
            Form(("audio/wav", "audio/mpeg", "audio/ogg", "audio/flac"), ("audio", "text/plain", "video/mp4")),
            required=True,
            secret=True,
        ),
        Field("fileSize", Whole(len(SOUND), len(SOUND)), required=True),
        Field(
            "fileBase64",
            Form((b64encode(SOUND).decode(),), ("%%%", "QUJ"), NO_SOUND, may_be_empty=True),
            required=True,
            secret=True,
        ),
    ),
    changes=(),
    told=(
        Field("id", Id("background sound"), required=True),
        Field("isSystemPreset", Flag(), required=True),
        Field("durationSeconds", Real(0, 3600), required=True),
        Field("createdAt", Time(), required=True),
    ),
    least=_least,
    readable=False,
    paged=False,
    dear=True,
)
