"""The addresses of this machine's network interfaces, in its network namespace."""

from __future__ import annotations

import socket
import time
from ipaddress import ip_address
from typing import Final

import psutil
import structlog

MAX_AGE_S: Final = 5.0
"""Time for which the addresses are used before they are read again."""

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)

_cached: tuple[float, frozenset[str]] = float("-inf"), frozenset()

log = structlog.get_logger()


def own_addresses() -> frozenset[str]:
    """Returns all addresses, in normal form without the zone of a link-local one, at most `MAX_AGE_S` old; the same
    object while they are the same. If they cannot be read, those of before."""
    global _cached
    now_s, (read_s, before) = time.monotonic(), _cached
    if now_s - read_s > MAX_AGE_S:
        try:
            found = _read()
        except OSError as error:
            log.warning("own_addresses.not_read", error=str(error))
            found = before
        _cached = now_s, before if found == before else found
    return _cached[1]


def _read() -> frozenset[str]:
    return frozenset(
        str(ip_address(each.address.partition("%")[0]))
        for interface in psutil.net_if_addrs().values()
        for each in interface
        if each.family in _FAMILIES
    )
