"""Types and validators of settings. A validator returns the value and raises `ValueError`."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from config.special_addresses import non_unicast_kind


def port_range(text: str) -> str:
    """Validates `first-last` within 1024..65535."""
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if match is None or not 1024 <= int(match[1]) < int(match[2]) <= 65535:
        raise ValueError("not a range of ports")
    return text


def session_timer(seconds: int) -> int:
    """Validates a session timer: 0 or at least 90 s (RFC 4028, section 5)."""
    if 0 < seconds < 90 or seconds < 0:
        raise ValueError("neither 0 nor 90 or more")
    return seconds


def address(text: str) -> str:
    """Validates an IP address; returns its normal form."""
    return str(ip_address(text))


def origin(text: str) -> str:
    """Validates an origin (RFC 6454); returns it without a trailing slash."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.rstrip("/") or parts.query:
        raise ValueError("not an origin")
    return text.rstrip("/")


def browser_origin(text: str) -> str:
    """Validates an origin; returns it as browsers write it: in lower case, without the default port of its scheme."""
    parts = urlsplit(origin(text))
    if parts.username is not None or parts.fragment or parts.port == 0 or "*" in text:
        raise ValueError("not an origin")
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    usual = parts.port in (None, 443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{host}" if usual else f"{parts.scheme}://{host}:{parts.port}"


Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]
SessionSeconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Codec = Literal["opus", "G722", "PCMU", "PCMA"]
IpAddress = IPv4Address | IPv6Address
PRIVATE_NETWORKS: Final = tuple(
    map(
        ip_network,
        (
            "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "127.0.0.0/8",
            "fc00::/7", "fe80::/10", "::1/128",
        ),
    )
)  # fmt: skip
"""Networks that are not behind NAT for this server (RFC 1918, 6598, 3927, 4193, 4291)."""
MAX_CALLS: Final = 992
"""The limit of the PJSIP build."""
PORTS_PER_CALL: Final = 2
"""RTP and RTCP."""


def name_server(text: str) -> str:
    """Validates `address` or `address:port`; an IPv6 address with a port is in brackets."""
    name_server_address(text)
    return text


def name_server_address(text: str) -> tuple[str, int]:
    """Returns address and port of a name server; the default port is 53. Raises `ValueError`."""
    match = re.fullmatch(r"(?:\[([^]]+)\]|([^:]+)):(\d{1,5})", text)
    host, port = (match[1] or match[2], int(match[3])) if match else (text, 53)
    if not 1 <= port <= 65535:
        raise ValueError("not a port")
    return str(ip_address(host)), port


_HOST_NAME: Final = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*(?!\d+$)[a-z0-9_-]{1,63}")
_MIN_PREFIX: Final = {4: 8, 6: 16}
"""Shorter prefixes cover large parts of the internet."""


def trunk_host(text: str) -> str:
    """Validates the unicast IP address or the host name of a trunk; returns its normal form."""
    try:
        host = address(text)
    except ValueError:
        host = text.lower().removesuffix(".")
        if len(host) > 253 or _HOST_NAME.fullmatch(host) is None:
            raise
    if non_unicast_kind(host) is not None:
        raise ValueError("no address of a trunk")
    return host


def trunk_source(text: str) -> str:
    """Validates a source of a trunk's calls: a host, or a network (CIDR); returns its normal form."""
    if "/" not in text:
        return trunk_host(text)
    network = ip_network(text, strict=False)
    if network.prefixlen < _MIN_PREFIX[network.version] or non_unicast_kind(str(network)) is not None:
        raise ValueError("no network of a trunk")
    return str(network)


def trunk_place(text: str) -> str:
    """Validates `host`, `host:port` or `[v6]:port` of a trunk, or an empty text."""
    if (match := re.fullmatch(r"(\[[^]]+\]|[^:]+)(?::(\d{1,5}))?", text)) is not None:
        trunk_host(match[1].strip("[]"))
        if match[2] is not None and not 1 <= int(match[2]) <= 65535:
            raise ValueError("not a port")
    elif text:
        trunk_host(text)
    return text
