"""Where SIP comes from, as it is written: every way of writing has one normal form, and two of them may overlap."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address, ip_network


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


def is_host_name(source: str) -> bool:
    """Whether a source in normal form is neither an address nor a network."""
    try:
        ip_network(source)
    except ValueError:
        return True
    return False


def overlap(these: Iterable[str], those: Iterable[str]) -> bool:
    """Whether a call could come from both: the same host name, or addresses and networks that have an address in
    common. Both are in normal form. What a host name resolves to is not asked. Takes little more than linear time."""
    names, ranges = _told_apart(these)
    other_names, other_ranges = _told_apart(those)
    if names & other_names:
        return True
    reach: _Address | None = None  # the last address of each side's widest network so far, in order of the first ones
    other_reach: _Address | None = None
    for first, last, other in sorted([(*each, False) for each in ranges] + [(*each, True) for each in other_ranges]):
        across = reach if other else other_reach
        if across is not None and across >= first:
            return True
        if other:
            other_reach = last if other_reach is None else max(other_reach, last)
        else:
            reach = last if reach is None else max(reach, last)
    return False


_Address = tuple[int, int]
"""Its version and its number."""


def _told_apart(sources: Iterable[str]) -> tuple[set[str], list[tuple[_Address, _Address]]]:
    """The names, and the first and last addresses of the others."""
    names: set[str] = set()
    ranges: list[tuple[_Address, _Address]] = []
    for source in sources:
        try:
            network = ip_network(source)
            ranges.append(((network.version, int(network[0])), (network.version, int(network[-1]))))
        except ValueError:
            names.add(source)
    return names, ranges
