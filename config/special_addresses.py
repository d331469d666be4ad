"""Addresses that stand for no ordinary host, so that no trunk may have them; IPv4 addresses within IPv6 ones."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

METADATA: Final[tuple[Network, ...]] = tuple(
    ip_network(address)
    for address in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
"""Metadata services of hosters outside the link-local range."""
LINK_LOCAL_METADATA: Final[tuple[Network, ...]] = tuple(
    ip_network(address) for address in ("169.254.169.254", "169.254.170.2", "169.254.170.23", "fe80::a9fe:a9fe")
)
"""And those within it."""
LAST_32_BITS: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("::ffff:0:0:0/96"))
"""They are an IPv4 address: NAT64 (RFC 6052) and IPv4-translated (RFC 2765)."""

_REMEMBERED: Final = 16384
"""Addresses whose answers are kept: the same ones are asked for at every change of any trunk."""

_NO_UNICAST: Final[tuple[tuple[Network, str], ...]] = (
    (ip_network("224.0.0.0/4"), "multicast"),
    (ip_network("ff00::/8"), "multicast"),
    (ip_network("255.255.255.255"), "broadcast"),
    (ip_network("127.255.255.255"), "broadcast"),
    (ip_network("240.0.0.0/4"), "reserved"),
    (ip_network("0.0.0.0/8"), "this network"),
    (ip_network("::"), "unspecified"),
    *((each, "a metadata service") for each in (*METADATA, *LINK_LOCAL_METADATA)),
)
"""RFC 5771, 4291 2.7, 919, 1112 4, 1122 3.2.1.3, 4291 2.5.2."""


def embedded(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for (mapped, 6to4, NAT64, translated), else itself."""
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and any(address in network for network in LAST_32_BITS):
        inner = IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


@lru_cache(_REMEMBERED)
def why_no_unicast(source: str) -> str | None:
    """What an address, or every address of a network (CIDR), is that no peer can have: "multicast" and the like. None
    for unicast, and for what is neither. An IPv6 zone is ignored."""
    try:
        network = ip_network(source.partition("%")[0])
    except ValueError:
        return None
    faces: list[Network] = [network]
    if network.num_addresses == 1:
        faces.append(ip_network(embedded(network[0])))
    return next((what for face in faces for special, what in _NO_UNICAST if _within(face, special)), None)


@lru_cache(_REMEMBERED)
def is_inside(address: str) -> bool:
    """Whether an address leads to this machine or to a private network (loopback, RFC 1918, 6598, 4193, link-local)
    rather than to the internet."""
    face = embedded(ip_address(address.partition("%")[0]))
    return face.is_loopback or face.is_link_local or any(_within(ip_network(face), each) for each in _PRIVATE)


_PRIVATE: Final[tuple[Network, ...]] = tuple(
    map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)


def _within(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and int(outer[0]) <= int(inner[0]) and int(inner[-1]) <= int(outer[-1])


def networks_without_hosts() -> tuple[Network, ...]:
    """All that no host can have, and metadata services, also as the IPv6 addresses that stand for them."""
    plain = [network for network, _ in _NO_UNICAST if int(network[-1])]
    return (*plain, *(each for network in plain if isinstance(network, IPv4Network) for each in _disguised(network)))


def _disguised(network: IPv4Network) -> tuple[IPv6Network, ...]:
    """The IPv6 networks whose addresses stand for those of an IPv4 network."""
    first, bits = int(network.network_address), network.prefixlen
    ends = (IPv6Network((int(each.network_address) | first, 96 + bits)) for each in LAST_32_BITS)
    return (*ends, IPv6Network((0x2002 << 112 | first << 80, 16 + bits)))
