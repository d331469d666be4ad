"""What stands between the network and the SIP stack: who may talk to us, how often, and what was turned away."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from sipcore import _native
from sipcore.messages.headers import header_value, printable

log = structlog.get_logger(__name__)


def set_sources(known: Iterable[str], probes: Iterable[str]) -> None:
    """Addresses and networks (CIDR) that may talk to us; `probes` may only send OPTIONS. Takes effect at once."""
    _native.guard_sources(tuple(known), tuple(probes))


def set_invite_rate_limit(per_second: int) -> None:
    """So many new INVITEs a second are taken from each source address, twice as many at once; more get 503."""
    _native.invite_rate_limit_set(per_second)


def log_events() -> None:
    """Write what was turned away since the last call: one line for each source and reason. Of what a known source sent
    and nobody could read, or named where no sound may go yet, the first is named."""
    events, more = _native.drop_events()
    for kind, source, count, about, message in events:
        named = _named("address" if kind in _OF_ADDRESSES else "header", about, message)
        log.warning(f"sip.{kind}", source=source, count=count, **named, **_HINTS.get(kind, {}))
    if more:
        log.warning("sip.unknown_source", source="further sources", count=more)


def drop_counts() -> dict[str, int]:
    """How often each reason has turned something away since the process began."""
    return _native.drop_totals()


_OF_ADDRESSES = ("media_refused", "media_elsewhere")
_HINTS = {
    "media_refused": {"hint": "the peer's SDP names an address that no host can have, or a metadata service"},
    "media_elsewhere": {
        "hint": "nothing is sent there before something comes from there: if the peer's sound is at home there, "
        "add its network to [sip] media_networks (TRUNKLINE_SIP__MEDIA_NETWORKS)"
    },
}


def _named(subject: str, about: str, message: bytes) -> dict[str, str | None]:
    """What tells an operator which message it was, as far as that can be read."""
    if not message:
        return {}
    text = message.decode("utf-8", "replace")
    first = printable(text.lstrip("\r\n").partition("\n")[0]).split(" ")
    return {
        "method": " ".join(first[: 2 if first[0].startswith("SIP/") else 1]) or None,
        "sip_call_id": printable(header_value(text, "Call-ID", "i")) or None,
        subject: printable(about) or None,
    }
