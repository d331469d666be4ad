"""Where SIP comes from, as it is written: every way of writing has one normal form, and two of them may overlap."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network


def normal_host(text: str) -> str:
    """The host in `host`, `host:port`, `[v6]:port` or a `sip:` URI: an IP address in normal form, or a name in lower
    case without the dot that may end it."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme.lower() in ("sip", "sips"):
        text = rest
    text = text.partition(";")[0].rpartition("@")[2]
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return _normal_address(text)
    except ValueError:
        return text.lower().removesuffix(".")


def _normal_address(text: str) -> str:
    """An IPv4 address that is written as IPv6 (RFC 4291, 2.5.5.2) is the IPv4 address: so it is seen on the wire."""
    address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def normal_source(text: str) -> str:
    """The same for a source: besides hosts a network in CIDR, whose host bits are cleared; one of a single address is
    that address."""
    if "/" not in text:
        return normal_host(text)
    network = ip_network(text, strict=False)
    return _normal_address(str(network[0])) if network.num_addresses == 1 else str(network)


def overlap(these: Iterable[str], those: Iterable[str]) -> bool:
    """Whether a call could come from both: the same host name, or addresses and networks that have an address in
    common. Both are in normal form. What a host name resolves to is not asked."""
    names, networks = _told_apart(these)
    other_names, other_networks = _told_apart(those)
    if names & other_names:
        return True
    return any(one.version == other.version and one.overlaps(other) for one in networks for other in other_networks)


def _told_apart(sources: Iterable[str]) -> tuple[set[str], list[Network]]:
    names, networks = set(), []
    for source in sources:
        try:
            networks.append(ip_network(source))
        except ValueError:
            names.add(source)
    return names, networks
