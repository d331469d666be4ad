"""What stands between the network and the SIP stack: who may talk to us, how often, and what was turned away."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from sipcore import _native

log = structlog.get_logger(__name__)


def set_sources(known: Iterable[str], probes: Iterable[str]) -> None:
    """Addresses and networks (CIDR) that may talk to us; `probes` may only send OPTIONS. Takes effect at once."""
    _native.guard_sources(tuple(known), tuple(probes))


def set_most_invites(per_second: int) -> None:
    """So many new INVITEs a second are taken from each source address, twice as many at once; more get 503."""
    _native.limit_set(per_second)


def log_events() -> None:
    """Write what was turned away since the last call: one line for each source and reason."""
    events, more = _native.guard_events()
    for kind, source, count in events:
        log.warning(f"sip.{kind}", source=source, count=count)
    if more:
        log.warning("sip.unknown_source", source="further sources", count=more)


def turned_away() -> dict[str, int]:
    """How often each reason has turned something away since the process began."""
    return _native.guard_totals()
