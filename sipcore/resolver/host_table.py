"""The host table: PJSIP's threads resolve host names in it, and never query a resolver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from sipcore import _native
from sipcore.messages.headers import printable
from sipcore.resolver.target import SipHostPort, SipTarget, ip_literal_targets

MAX_HOSTS: Final = 4096
"""Entries of the table."""
_MAX_LOGGED: Final = 1000
"""Unknown names that are logged once; above that number the list is cleared, and they are logged again."""

log = structlog.get_logger(__name__)


class HostTable:
    """The host table of one endpoint, and the unknown names that were looked up in it."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._table: Mapping[SipHostPort, Sequence[SipTarget]] = {}
        self.unknown = 0
        """Lookups of names that are not in the table."""

    def set(self, table: Mapping[SipHostPort, Sequence[SipTarget]]) -> None:
        """Replace the whole table. Targets are in order of preference, and the first 16 of a host are used; a host
        without any is unknown: a request to it fails at once. Raises `ValueError` for more than `MAX_HOSTS` hosts."""
        self._table = {_in_lower_case(host_port): targets for host_port, targets in table.items()}
        _native.host_table_set(
            tuple(
                (host_port.host, host_port.port or 0, host_port.transport or "udp", tuple(map(_as_tuple, targets)))
                for host_port, targets in self._table.items()
                if targets
            )
        )

    def targets(self, host_port: SipHostPort) -> Sequence[SipTarget]:
        """The targets of a host and port, in order of preference; none for an unknown name."""
        return ip_literal_targets(host_port) or self._table.get(_in_lower_case(host_port), ())

    def log_unknown(self) -> None:
        """Log the names that were looked up and are not in the table, each once."""
        names, more = _native.host_table_unknown()
        self.unknown += sum(count for _, count in names) + more
        if len(self._logged) > _MAX_LOGGED:
            self._logged.clear()
        for host, count in names:
            if host not in self._logged:
                self._logged.add(host)
                log.warning("sip.unknown_name", host=printable(host), count=count)


def _in_lower_case(host_port: SipHostPort) -> SipHostPort:
    host = host_port.host.lower()
    return host_port if host == host_port.host else host_port._replace(host=host)


def _as_tuple(target: SipTarget) -> tuple[str, int, str]:
    return target.address, target.port, target.transport
