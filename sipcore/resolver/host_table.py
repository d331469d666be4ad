"""The addresses of host names for PJSIP, whose threads never ask a resolver: they look into a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import structlog

from sipcore import _native
from sipcore.messages.headers import is_ip_address, printable
from sipcore.resolver.target import SipHostPort, SipTarget

MAX_HOSTS: Final = 4096
"""Entries of the table."""
_REMEMBERED: Final = 1000
"""Unknown names that are told once; beyond that many, they are forgotten and told again."""

log = structlog.get_logger(__name__)


class HostTable:
    """The table of one endpoint, and what was asked for in vain."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._table: Mapping[SipHostPort, Sequence[SipTarget]] = {}
        self.unknown = 0
        """Times that a name was not in the table."""

    def set(self, table: Mapping[SipHostPort, Sequence[SipTarget]]) -> None:
        """Replace the whole table. Targets are in order of preference, at most 16 of a place are kept; a place without
        any is unknown: a request to it fails at once. Raises `ValueError` for more than `MAX_HOSTS` places."""
        self._table = {_in_lower_case(place): targets for place, targets in table.items()}
        _native.host_table_set(
            tuple(
                (place.host.lower(), place.port or 0, place.transport, tuple(map(_as_tuple, targets)))
                for place, targets in table.items()
                if targets
            )
        )

    def targets(self, place: SipHostPort) -> Sequence[SipTarget]:
        """Where a place is, in order of preference; nothing when that is not known."""
        if is_ip_address(place.host):
            return (SipTarget(place.host, place.port or (5061 if place.transport == "tls" else 5060), place.transport),)
        return self._table.get(_in_lower_case(place), ())

    def log_unknown(self) -> None:
        """Write which names were asked for that are not in the table: each once."""
        asked, more = _native.host_table_unknown()
        self.unknown += sum(count for _, count in asked) + more
        if len(self._told) > _REMEMBERED:
            self._told.clear()
        for host, count in asked:
            if host not in self._told:
                self._told.add(host)
                log.warning("sip.unknown_name", host=printable(host), count=count)


def _in_lower_case(place: SipHostPort) -> SipHostPort:
    host = place.host.lower()
    return place if host == place.host else replace(place, host=host)


def _as_tuple(target: SipTarget) -> tuple[str, int, str]:
    return target.address, target.port, target.transport
