"""Where an address leads: what an organization sends to one host and port shares a lane."""

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


def lane_of(organization_id: str, url: str) -> str:
    """The organization and the destination of an address: whom others know as slow is slow for none but them."""
    return f"{organization_id} {destination_of(url)}"


def organization_of(lane: str) -> str:
    """Whose lane it is; "" for what was put into the outbox before lanes were organizations'."""
    organization_id, found, _ = lane.partition(" ")
    return organization_id if found else ""
