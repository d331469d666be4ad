"""Signed links: URLs of recordings, transcripts and voice samples that need no API key, with an expiry and a signature
of the path."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, Literal

from config.secrets import Secrets

LIFETIME_S: Final = 7 * 86400
"""The minimum lifetime of a link, seconds; the maximum is a day longer."""
MAX_EXPIRY_DIGITS: Final = 11
"""Digits."""
_OF_RECORDINGS: Final = re.compile(rb"(/v1/calls/[0-9a-f-]{36}/recording)\?expires=[0-9]+&signature=[\w=-]+")
LinkFault = Literal["altered", "expired"]


def recording_path(call_id: str) -> str:
    """Returns the path of a call's recording on the API."""
    return f"/v1/calls/{call_id}/recording"


def voice_sample_path(voice_id: str) -> str:
    """Returns the path of a voice's sample on the API."""
    return f"/v1/voices/{voice_id}/sample"


def transcript_path(call_id: str) -> str:
    """Returns the path of a call's transcript on the API."""
    return f"/v1/calls/{call_id}/transcript"


def signed_url(secrets: Secrets, origin: str, path: str, now: datetime) -> str:
    """Returns the signed URL of `path`. `origin` is scheme, host and port. The expiry is rounded up to a whole day, so
    that the URL is the same for a day."""
    expires = (int(now.timestamp()) + LIFETIME_S) // 86400 * 86400 + 86400
    return f"{origin}{path}?expires={expires}&signature={secrets.sign(_text(path, expires))}"


def without_signatures(text: bytes) -> bytes:
    """Returns the text with the links of recordings in it unsigned: these open with a key or a session alone."""
    return _OF_RECORDINGS.sub(rb"\1", text)


def link_fault(secrets: Secrets, path: str, expires: str, signature: str, now: datetime) -> LinkFault | None:
    """Returns why a link's query is not valid for `path` now, None when it is. "expired" only with a valid
    signature."""
    is_number = expires.isascii() and expires.isdigit() and len(expires) <= MAX_EXPIRY_DIGITS
    if not (is_number and secrets.verify(_text(path, int(expires)), signature)):
        return "altered"
    return None if now < datetime.fromtimestamp(int(expires), UTC) else "expired"


def _text(path: str, expires: int) -> str:
    return f"link\n{path}\n{expires}"
