"""SIP listeners: UDP and TCP over IPv4 and IPv6, on one port number; and the IP versions of listening addresses."""

from __future__ import annotations

import socket
from typing import Final

import pjsua2 as pj
import structlog

from config.errors import StartupError
from sipcore.settings import EndpointSettings

IPV6_V6ONLY: Final = 26
"""Linux's number; Python names it only where its headers do."""
_TRIES: Final = 20
"""Attempts to find a port: the system chooses one that is free for UDP, perhaps not for TCP."""

# Never freed, because pjsua2's copies point to their values.
_NO_DELAY = pj.SockOpt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
_REUSE_ADDRESS = pj.SockOpt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
IPV6_ONLY = pj.SockOpt(socket.IPPROTO_IPV6, IPV6_V6ONLY, 1)


_DOCUMENTATION_ADDRESS = {4: "192.0.2.1", 6: "2001:db8::1"}
"""Documentation addresses (RFC 5737, RFC 3849): packets to them would take the default route."""
log = structlog.get_logger(__name__)


def ip_versions(host: str) -> tuple[int, ...]:
    """The IP versions of a listening address: `::` listens on both, `0.0.0.0` on IPv4."""
    if host == "::":
        return (4, 6)
    return (6,) if ":" in host else (4,)


def is_wildcard(host: str) -> bool:
    """True if a listening address means every address of this machine."""
    return host in ("0.0.0.0", "::")


def bound_address(host: str) -> str:
    """The address that sockets are bound to; "": every address."""
    return "" if is_wildcard(host) else host


def default_local_address(host: str, version: int) -> str:
    """Our address in messages whose peer is not known yet: that of the default route. Without it PJSIP would look up
    the name of this machine."""
    if not is_wildcard(host):
        return host
    family, loopback = (socket.AF_INET6, "::1") if version == 6 else (socket.AF_INET, "127.0.0.1")
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_DOCUMENTATION_ADDRESS[version], 9))
            return str(probe.getsockname()[0])
    except OSError as error:
        log.debug("sip.no_default_route", ip_version=version, why=str(error))
        return loopback


def open_listeners(endpoint: pj.Endpoint, settings: EndpointSettings) -> int:
    """Open the SIP listeners; returns their port. Raises `StartupError` with one clear line when a port is in use."""
    if settings.port:
        return _open_all(endpoint, settings, settings.port, [])
    for left in reversed(range(_TRIES)):
        opened: list[int] = []
        try:
            return _open_all(endpoint, settings, _any_port(), opened)
        except StartupError:
            if not left:
                raise
            for transport in opened:
                endpoint.transportClose(transport)
    raise AssertionError("the last try either returns or raises")


def _any_port() -> int:
    """The system chooses."""
    return 0


def _open_all(endpoint: pj.Endpoint, settings: EndpointSettings, port: int, opened: list[int]) -> int:
    """Open each kind of listener on that port; 0: the first on any free port, the others on the same one. `opened` gets
    the PJSUA numbers of opened transports, also when an error is raised."""
    for name in ("udp", "tcp") if settings.tcp else ("udp",):
        for version in ip_versions(settings.host):
            config = _transport_config(settings, name, version, port)
            try:
                opened.append(endpoint.transportCreate(_KINDS[name, version], config))
            except pj.Error as error:
                raise StartupError(
                    f"SIP port {port}/{name} on {config.boundAddress or WILDCARD[version]} cannot be opened "
                    f"({error.reason}): stop the program that uses it, or set [sip] port (TRUNKLINE_SIP__PORT)"
                ) from error
            port = int(endpoint.transportGetInfo(opened[-1]).localAddress.rpartition(":")[2])
    return port


WILDCARD = {4: "0.0.0.0", 6: "::"}
_KINDS = {
    ("udp", 4): pj.PJSIP_TRANSPORT_UDP,
    ("udp", 6): pj.PJSIP_TRANSPORT_UDP6,
    ("tcp", 4): pj.PJSIP_TRANSPORT_TCP,
    ("tcp", 6): pj.PJSIP_TRANSPORT_TCP6,
}


def _transport_config(settings: EndpointSettings, name: str, version: int, port: int) -> pj.TransportConfig:
    config = pj.TransportConfig()
    config.port = port
    config.boundAddress = bound_address(settings.host)
    config.publicAddress = default_local_address(settings.host, version)
    options = config.sockOptParams.sockOpts
    if name == "tcp":
        options.append(_NO_DELAY)  # else a message waits 40 ms for the acknowledgement of the former one
        options.append(_REUSE_ADDRESS)  # else connections of a server that has just stopped keep its port for a minute
    if version == 6:
        options.append(IPV6_ONLY)  # else it occupies the port on IPv4 too
    return config
