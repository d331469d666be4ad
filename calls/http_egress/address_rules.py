"""Address rules of outbound HTTP: which IP addresses tools and webhooks may connect to."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Self

from config.settings_tables import EgressSettings
from config.special_addresses import METADATA_SERVICES, Address, Network, embedded_ipv4

TUNNELS: Final = (IPv6Network("64:ff9b:1::/48"), IPv6Network("2001::/32"))
"""Tunnel prefixes whose addresses embed IPv4 addresses: local-use NAT64 (RFC 8215), at a position that depends on the
network, and Teredo (RFC 4380), with two of them."""
V4_COMPATIBLE: Final = IPv6Network("::/96")
"""RFC 4291 2.5.5.1: deprecated, but some stacks still support it."""
THIS_NETWORK: Final = IPv4Network("0.0.0.0/8")
"""RFC 1122: reaches the local host on Linux."""
LOOPBACK_NAMES: Final = frozenset(("localhost", "localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback"))
"""Names of the machine itself; by RFC 6761, 6.3, also every name below `localhost`."""
LOOPBACK: Final = ("127.0.0.1", "::1")
METADATA_NAMES: Final = {
    "metadata.google.internal": ("169.254.169.254",),
    "metadata.goog": ("169.254.169.254",),
    "instance-data.ec2.internal": ("169.254.169.254",),
}
"""Names of the metadata services of cloud providers, with their addresses."""


def _embedded(address: Address) -> Address:
    """Returns the IPv4 address embedded in an IPv6 address (mapped, compatible, translated, 6to4, NAT64), else
    itself."""
    if isinstance(address, IPv6Address) and address in V4_COMPATIBLE and int(address) > 1:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return embedded_ipv4(address)


def _networks(cidrs: Iterable[str]) -> tuple[Network, ...]:
    return tuple(ip_network(cidr, strict=False) for cidr in cidrs)


class HttpEgressRules:
    """The IP addresses that may be connected to. Loopback, link-local (metadata services included), multicast,
    reserved, unspecified and tunnel addresses are refused unless `allow` lists them; `deny` refuses more, and has
    precedence."""

    def __init__(self, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> None:
        """Both are lists of CIDR blocks. Raises `ValueError` for an invalid one."""
        self._allow = _networks(allow)
        self._deny = _networks(deny)

    @classmethod
    def of(cls, settings: EgressSettings) -> Self:
        """The rules of `[egress]`."""
        return cls([str(each) for each in settings.allow], [str(each) for each in settings.deny])

    def refused_host(self, host: str) -> str | None:
        """Returns the address by which connections to `host` of a URL are refused whatever a name server says, else
        None. `host` may be an IP address in any form that the resolver of C libraries takes, such as `0x7f.1`, and may
        be an unfinished name with variables before its last labels."""
        addresses = _known_addresses(host)
        return addresses[0] if addresses and not any(map(self.is_allowed, addresses)) else None

    def is_allowed(self, address: str) -> bool:
        """True if `address` (a literal; an IPv6 zone is ignored) may be connected to."""
        literal = ip_address(address.partition("%")[0])
        addresses = {literal, _embedded(literal)}
        if any(each in network for each in addresses for network in self._deny):
            return False
        if any(each in network for each in addresses for network in self._allow):
            return True
        return not any(_is_special(each) for each in addresses)


def _is_special(address: Address) -> bool:
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or (isinstance(address, IPv4Address) and (address in THIS_NETWORK or address.is_reserved))
        or any(address in network for network in (*METADATA_SERVICES, *TUNNELS))
    )


def _known_addresses(host: str) -> tuple[str, ...]:
    """The addresses of a host that are known without a name server."""
    name = host.strip("[]").lower().removesuffix(".")
    if name in LOOPBACK_NAMES or name.endswith(".localhost"):
        return LOOPBACK
    if name in METADATA_NAMES:
        return METADATA_NAMES[name]
    try:
        return (str(ip_address(name)),)
    except ValueError:
        pass
    try:
        return (socket.inet_ntoa(socket.inet_aton(name)),)
    except OSError:
        return ()
