"""Where an address leads: what is sent to one host and port shares that one's room."""

from __future__ import annotations

from urllib.parse import urlsplit


def destination_of(url: str) -> str:
    """Host and port of an address, `receiver.example:443`; "" when it is none, so that those share one room too."""
    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return ""
    return f"{parts.hostname}:{port}" if parts.hostname else ""
