"""Where SIP requests go: a host with its port and transport, and the address that it resolves to (RFC 3263)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Transport = Literal["udp", "tcp", "tls"]


@dataclass(frozen=True)
class SipHostPort:
    """Where requests go. `host`: an IP address, IPv6 without brackets, or a name. Without a port the name's SRV records
    are asked, then it is 5060, or 5061 for TLS (RFC 3263 4.2)."""

    host: str
    port: int | None
    transport: Transport


@dataclass(frozen=True)
class SipTarget:
    """An address to send to: `address` is an IP address, IPv6 without brackets."""

    address: str
    port: int
    transport: Transport
