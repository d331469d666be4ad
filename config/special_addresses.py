"""Special-purpose addresses (RFC 6890): multicast, broadcast, private networks, metadata services of cloud providers;
and IPv4 addresses embedded in IPv6 addresses."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

METADATA_SERVICES: Final[tuple[Network, ...]] = tuple(
    ip_network(address)
    for address in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
"""Metadata services of cloud providers outside of the link-local range."""
LINK_LOCAL_METADATA_SERVICES: Final[tuple[Network, ...]] = tuple(
    ip_network(address) for address in ("169.254.169.254", "169.254.170.2", "169.254.170.23", "fe80::a9fe:a9fe")
)
"""Metadata services within the link-local range."""
IPV4_PREFIXES: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("::ffff:0:0:0/96"))
"""Prefixes before an embedded IPv4 address: NAT64 (RFC 6052) and IPv4-translated (RFC 2765)."""

_CACHE_SIZE: Final = 16384
"""Entries of the caches: every change of a trunk checks the same addresses again."""

_NON_UNICAST: Final[tuple[tuple[Network, str], ...]] = (
    (ip_network("224.0.0.0/4"), "multicast"),
    (ip_network("ff00::/8"), "multicast"),
    (ip_network("255.255.255.255"), "broadcast"),
    (ip_network("127.255.255.255"), "broadcast"),
    (ip_network("240.0.0.0/4"), "reserved"),
    (ip_network("0.0.0.0/8"), "this network"),
    (ip_network("::"), "unspecified"),
    *((each, "a metadata service") for each in (*METADATA_SERVICES, *LINK_LOCAL_METADATA_SERVICES)),
)
"""RFC 5771, 4291 2.7, 919, 1112 4, 1122 3.2.1.3, 4291 2.5.2."""


def embedded_ipv4(address: Address) -> Address:
    """Returns the IPv4 address embedded in an IPv6 address (mapped, 6to4, NAT64, translated), else the address."""
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and any(address in network for network in IPV4_PREFIXES):
        inner = IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


@lru_cache(_CACHE_SIZE)
def non_unicast_kind(source: str) -> str | None:
    """Returns the kind of an address, or of a whole network (CIDR), that no peer can have: "multicast" and the like.
    None for unicast, and for other texts. An IPv6 zone is ignored."""
    try:
        network = ip_network(source.partition("%")[0])
    except ValueError:
        return None
    networks: list[Network] = [network]
    if network.num_addresses == 1:
        networks.append(ip_network(embedded_ipv4(network[0])))
    return next((kind for each in networks for special, kind in _NON_UNICAST if _within(each, special)), None)


@lru_cache(_CACHE_SIZE)
def is_internal(address: str) -> bool:
    """True if an address is loopback, link-local or in a private network (RFC 1918, 6598, 4193), hence not on the
    internet."""
    inner = embedded_ipv4(ip_address(address.partition("%")[0]))
    return inner.is_loopback or inner.is_link_local or any(_within(ip_network(inner), each) for each in _PRIVATE)


_PRIVATE: Final[tuple[Network, ...]] = tuple(
    map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)


def _within(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and int(outer[0]) <= int(inner[0]) and int(inner[-1]) <= int(outer[-1])


def non_host_networks() -> tuple[Network, ...]:
    """Returns the networks that no host can be in and the metadata services, also as embedded in IPv6 addresses."""
    plain = [network for network, _ in _NON_UNICAST if int(network[-1])]
    return (
        *plain,
        *(each for network in plain if isinstance(network, IPv4Network) for each in _embedding_networks(network)),
    )


def _embedding_networks(network: IPv4Network) -> tuple[IPv6Network, ...]:
    """The IPv6 networks that embed an IPv4 network."""
    first, bits = int(network.network_address), network.prefixlen
    ends = (IPv6Network((int(each.network_address) | first, 96 + bits)) for each in IPV4_PREFIXES)
    return (*ends, IPv6Network((0x2002 << 112 | first << 80, 16 + bits)))
