"""Normal form of SIP sources: one spelling for each address, network and host name."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

_CACHE_SIZE: Final = 16384
"""Entries of the caches: every change of a trunk normalizes the same texts again."""


@lru_cache(_CACHE_SIZE)
def normal_host(text: str) -> str:
    """Returns the host in `host`, `host:port`, `[v6]:port` or a `sip:` URI: an IP address in normal form, or a name in
    lower case without a trailing dot."""
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
    """An IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2) becomes the IPv4 address, which packets have."""
    address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def normal_source(text: str) -> str:
    """Returns a source in normal form: a host, or a network in CIDR with cleared host bits; a network of a single
    address is that address."""
    if "/" not in text:
        return normal_host(text)
    network = ip_network(text, strict=False)
    return _normal_address(str(network[0])) if network.num_addresses == 1 else str(network)


@lru_cache(_CACHE_SIZE)
def is_host_name(source: str) -> bool:
    """True if a source in normal form is neither an address nor a network."""
    try:
        ip_network(source)
    except ValueError:
        return True
    return False


def is_address(source: str) -> bool:
    """True if a source in normal form is a single address."""
    return "/" not in source and not is_host_name(source)
