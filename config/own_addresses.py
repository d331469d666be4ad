"""The addresses that this machine has, as the kernel tells them (rtnetlink(7))."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

import structlog

MAX_AGE_S: Final = 5.0
"""What was read is believed for so long."""

_RTM_NEWADDR: Final = 20
_RTM_GETADDR: Final = 22
_REQUEST_DUMP: Final = 0x301
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_HEADER: Final = struct.Struct("=IHHII")
"""Length, type, flags, sequence, port (`nlmsghdr`)."""
_ABOUT_ADDRESS: Final = struct.Struct("=BBBBI")
"""Family, prefix length, flags, scope, interface (`ifaddrmsg`)."""
_ATTRIBUTE: Final = struct.Struct("=HH")
_SIZES: Final = (4, 16)

_kept: tuple[float, frozenset[str]] = float("-inf"), frozenset()

log = structlog.get_logger()


def own_addresses() -> frozenset[str]:
    """All of them, in normal form, at most `MAX_AGE_S` old; the same object while they are the same. Those of before
    while the kernel does not tell."""
    global _kept
    now_s, (read_s, before) = time.monotonic(), _kept
    if now_s - read_s > MAX_AGE_S:
        try:
            found = frozenset(_read())
        except OSError as error:
            log.warning("own_addresses.not_read", error=str(error))
            found = before
        _kept = now_s, before if found == before else found
    return _kept[1]


def _read() -> Iterator[str]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.setblocking(False)  # the kernel answers at once
        size = _HEADER.size + _ABOUT_ADDRESS.size
        kernel.send(_HEADER.pack(size, _RTM_GETADDR, _REQUEST_DUMP, 1, 0) + _ABOUT_ADDRESS.pack(0, 0, 0, 0, 0))
        while True:
            answer = kernel.recv(1 << 16)
            while answer:
                length, kind, *_ = _HEADER.unpack_from(answer)
                if kind != _RTM_NEWADDR:
                    return  # done, or refused
                yield from _address(answer[size:length])
                answer = answer[_aligned(length) :]


def _address(attributes: bytes) -> Iterator[str]:
    """Between two points the address is the other side's, and the local one ours."""
    found: dict[int, bytes] = {}
    while attributes:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        found[kind] = attributes[_ATTRIBUTE.size : length]
        attributes = attributes[_aligned(length) :]
    own = found.get(_IFA_LOCAL, found.get(_IFA_ADDRESS, b""))
    if len(own) in _SIZES:
        yield str(ip_address(own))


def _aligned(length: int) -> int:
    return (length + 3) & ~3
