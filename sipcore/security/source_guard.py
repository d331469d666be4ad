"""The source guard in front of the SIP stack: which sources may send SIP, at which rate, and what was dropped."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from sipcore import _native
from sipcore.messages.headers import header_value, printable
from sipcore.security.unknown_sources import UnknownSources

log = structlog.get_logger(__name__)


def set_sources(known: Iterable[str], probes: Iterable[str]) -> None:
    """Set the addresses and networks (CIDR) that may send SIP; `probes` may only send OPTIONS. Takes effect at once."""
    _native.guard_sources(tuple(known), tuple(probes))


def set_invite_rate_limit(per_second: int) -> None:
    """Set how many new INVITEs a second each source address may send; the burst is twice that, more get 503."""
    _native.invite_rate_limit_set(per_second)


def log_events(unknown: UnknownSources) -> None:
    """Log what was dropped since the last call: one line for each source and reason; unknown sources are also added to
    `unknown`. The first malformed message of a known source, and the first address in SDP that RTP may not go to, are
    quoted."""
    events, more = _native.drop_events()
    for kind, source, count, at_fault, message in events:
        if kind == "unknown_source":
            unknown.add(source, count)
        named = _message_fields("address" if kind in _ADDRESS_EVENTS else "header", at_fault, message)
        log.warning(f"sip.{kind}", source=source, count=count, **named, **_HINTS.get(kind, {}))
    if more:
        log.warning("sip.unknown_source", source="further sources", count=more)


def drop_counts() -> dict[str, int]:
    """Dropped messages since the process began, by reason."""
    return _native.drop_totals()


_ADDRESS_EVENTS = ("media_refused", "media_elsewhere")
_HINTS = {
    "media_refused": {"hint": "the peer's SDP names an address that no host can have, or one of a metadata service"},
    "media_elsewhere": {
        "hint": "no RTP is sent to the address before RTP comes from it: if the peer's media has this address, "
        "add its network to [sip] media_networks (TRUNKLINE_SIP__MEDIA_NETWORKS)"
    },
}


def _message_fields(subject: str, at_fault: str, message: bytes) -> dict[str, str | None]:
    """Log fields that identify a message, as far as it can be parsed."""
    if not message:
        return {}
    text = message.decode("utf-8", "replace")
    first = printable(text.lstrip("\r\n").partition("\n")[0]).split(" ")
    return {
        "method": " ".join(first[: 2 if first[0].startswith("SIP/") else 1]) or None,
        "sip_call_id": printable(header_value(text, "Call-ID", "i")) or None,
        subject: printable(at_fault) or None,
    }
