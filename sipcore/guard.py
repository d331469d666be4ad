"""What stands between the network and the SIP stack: who may talk to us, how often, and what was turned away."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from sipcore import _native
from sipcore.headers import printable, value

log = structlog.get_logger(__name__)


def set_sources(known: Iterable[str], probes: Iterable[str]) -> None:
    """Addresses and networks (CIDR) that may talk to us; `probes` may only send OPTIONS. Takes effect at once."""
    _native.guard_sources(tuple(known), tuple(probes))


def set_most_invites(per_second: int) -> None:
    """So many new INVITEs a second are taken from each source address, twice as many at once; more get 503."""
    _native.limit_set(per_second)


def log_events() -> None:
    """Write what was turned away since the last call: one line for each source and reason. Of what a known source sent
    and nobody could read, the first is named."""
    events, more = _native.guard_events()
    for kind, source, count, header, message in events:
        log.warning(f"sip.{kind}", source=source, count=count, **_named(header, message))
    if more:
        log.warning("sip.unknown_source", source="further sources", count=more)


def turned_away() -> dict[str, int]:
    """How often each reason has turned something away since the process began."""
    return _native.guard_totals()


def _named(header: str, message: bytes) -> dict[str, str | None]:
    """What tells an operator which message it was, as far as that can be read."""
    if not message:
        return {}
    text = message.decode("utf-8", "replace")
    first = printable(text.lstrip("\r\n").partition("\n")[0]).split(" ")
    return {
        "method": " ".join(first[: 2 if first[0].startswith("SIP/") else 1]) or None,
        "sip_call_id": printable(value(text, "Call-ID", "i")) or None,
        "header": printable(header) or None,
    }
