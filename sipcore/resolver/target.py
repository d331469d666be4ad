"""Where SIP requests go: a host with its port and transport (`SipHostPort`), and an address that it resolves to
(`SipTarget`, RFC 3263)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Literal, NamedTuple

Transport = Literal["udp", "tcp", "tls"]

DEFAULT_PORT: Final[dict[Transport, int]] = {"udp": 5060, "tcp": 5060, "tls": 5061}


class SipHostPort(NamedTuple):
    """The host of a SIP URI, with the port and transport that the URI states. `host`: an IP address, IPv6 without
    brackets, or a name. Without a port a name's SRV records are looked up, without a transport also its NAPTR records
    (RFC 3263 4); without records the transport is UDP, and the port 5060, or 5061 for TLS."""

    host: str
    port: int | None = None
    transport: Transport | None = None


@dataclass(frozen=True)
class SipTarget:
    """An address that requests are sent to: `address` is an IP address, IPv6 without brackets."""

    address: str
    port: int
    transport: Transport


@lru_cache(16384)
def ip_literal_targets(host_port: SipHostPort) -> tuple[SipTarget, ...] | None:
    """The one target of an IP address; None for a name."""
    try:
        address = str(ip_address(host_port.host))
    except ValueError:
        return None
    transport = host_port.transport or "udp"
    return (SipTarget(address, host_port.port or DEFAULT_PORT[transport], transport),)
