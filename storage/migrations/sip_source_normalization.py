"""Normalization of SIP sources as the migrations wrote them. Never change it: a migration must do today what it did
when it was released."""

from __future__ import annotations

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
    """An IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2) is the IPv4 address."""
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
