"""What nodes ask of each other: what only the node of a call can do or tell, and the events, live calls and refusals
of a node. Nothing else is passed on, or taken from another node."""

from __future__ import annotations

from typing import Final

from aiohttp import web

_CALL: Final = "/v1/calls/{id}"
_ACTIONS: Final = ("hangup", "transfer", "hold", "unhold", "whisper", "takeover", "messages")
SOCKETS: Final = frozenset({("GET", f"{_CALL}/listen"), ("GET", f"{_CALL}/socket")})
OF_LIVE_CALLS: Final = SOCKETS | {
    *(("POST", f"{_CALL}/{action}") for action in _ACTIONS),
    *((method, path) for method in ("GET", "HEAD") for path in (_CALL, f"{_CALL}/sip")),
}
"""By method and path."""
RECORDINGS: Final = frozenset(
    (method, f"{_CALL}/{what}") for method in ("GET", "HEAD") for what in ("recording", "waveform")
)
"""What needs the file of an ended call, which is on the disk of its node until it is in the common store."""
REPLAY: Final = ("POST", f"{_CALL}/replay")
EXPORTS: Final = frozenset((method, f"{_CALL}/export") for method in ("GET", "HEAD"))
"""What needs the SIP messages of a live call, and the file of an ended one."""
EVENTS_PATH: Final = "/nodes/events"
LIVE_CALLS_PATH: Final = "/nodes/live-calls"
REFUSED_INVITES_PATH: Final = "/nodes/refused-invites"
UNKNOWN_SOURCES_PATH: Final = "/nodes/unknown-sources"
FOR_NODES: Final = frozenset(
    ("GET", path) for path in (EVENTS_PATH, LIVE_CALLS_PATH, REFUSED_INVITES_PATH, UNKNOWN_SOURCES_PATH)
)
"""What no client may ask."""
PASSED_ON: Final = OF_LIVE_CALLS | RECORDINGS | EXPORTS | {REPLAY}


def operation_of(request: web.Request) -> tuple[str, str]:
    """Returns the method and the path of the request's route."""
    resource = request.match_info.route.resource
    return request.method, "" if resource is None else resource.canonical
