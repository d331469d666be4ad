"""Links to this server's files that open without an API key: they carry an expiry and a signature over the path."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal

from config.secrets import Secrets

LIFETIME_S: Final = 7 * 86400
"""A link holds at least this long, and a day more at most."""
LONGEST_EXPIRY: Final = 11
"""Digits."""
LinkFault = Literal["altered", "expired"]


def recording_path(call_id: str) -> str:
    """Path of a call's recording on the API."""
    return f"/v1/calls/{call_id}/recording"


def transcript_path(call_id: str) -> str:
    """Path of a call's transcript on the API."""
    return f"/v1/calls/{call_id}/transcript"


def signed_url(secrets: Secrets, origin: str, path: str, now: datetime) -> str:
    """The absolute, signed address of `path` on this server. `origin` is scheme, host and port. The expiry is rounded
    to whole days, so that a link stays the same for a day."""
    expires = (int(now.timestamp()) + LIFETIME_S) // 86400 * 86400 + 86400
    return f"{origin}{path}?expires={expires}&signature={secrets.sign(_text(path, expires))}"


def why_not(secrets: Secrets, path: str, expires: str, signature: str, now: datetime) -> LinkFault | None:
    """Why a link's query does not open `path` now; None when it does. Only a link that we gave out is told that it has
    expired."""
    ours = expires.isascii() and expires.isdigit() and len(expires) <= LONGEST_EXPIRY
    if not (ours and secrets.signed(_text(path, int(expires)), signature)):
        return "altered"
    return None if now < datetime.fromtimestamp(int(expires), UTC) else "expired"


def _text(path: str, expires: int) -> str:
    return f"link\n{path}\n{expires}"
