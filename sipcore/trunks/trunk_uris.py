"""The URIs of a trunk: its registrar, who we are there, whom we call, and which way requests go."""

from __future__ import annotations

from urllib.parse import quote

from sipcore.messages.headers import bracketed, is_ip_address
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.trunks.trunk import Trunk

_USER = "-_.!~*'()&=+$,;?/"
"""What needs no escapes in the user part, beside letters and digits (RFC 3261 25.1)."""


def registrar_uri(trunk: Trunk) -> str:
    """The request URI of REGISTER: without a user (RFC 3261 10.2)."""
    return host_port_uri(trunk.host_port)


def host_port_uri(place: SipHostPort) -> str:
    """Whoever answers for SIP at a place."""
    return f"sip:{_host_port(place)}"


def user_and_domain(trunk: Trunk) -> tuple[str, str]:
    """Who a registered trunk is: the user part, with its escapes, and the domain. A user that has a domain in it keeps
    that."""
    user, at, domain = trunk.user.rpartition("@")
    return (escape_user(user), domain) if at else (escape_user(trunk.user), bracketed(trunk.host))


def address_of_record(trunk: Trunk) -> str:
    """From and To of REGISTER."""
    return "sip:{}@{}".format(*user_and_domain(trunk))


def identity_uri(trunk: Trunk) -> str:
    """Who calls: the number, at the registrar."""
    return f"sip:{escape_user(trunk.number or trunk.user)}@{bracketed(trunk.host)}"


def request_uri(trunk: Trunk, to: str) -> str:
    """Whom an INVITE goes to."""
    return f"sip:{escape_user(to)}@{_host_port(trunk.host_port)}"


def request_uri_at(trunk: Trunk, target: SipTarget, to: str) -> str:
    """The same for a trunk without an account: by address, but for TLS, which goes by the name that the peer must
    prove."""
    if target.transport == "tls":
        return request_uri(trunk, to)
    return f"sip:{escape_user(to)}@{bracketed(target.address)}:{target.port};transport={target.transport}"


def route_set(trunk: Trunk, target: SipTarget) -> list[str]:
    """Route values, first hop first: the outbound proxy, and before it the address that was chosen for it or for the
    registrar. That one stays with us: PJSIP follows a route that has `hide`, and does not send it. TLS goes by the
    name, which the peer must prove (RFC 5922 4); PJSIP finds the same address for it."""
    proxy = trunk.outbound_proxy
    first = proxy or trunk.host_port
    hidden = _host_port(SipHostPort(target.address, target.port, target.transport))
    return [
        *([] if is_ip_address(first.host) or target.transport == "tls" else [f"<sip:{hidden};lr;hide>"]),
        *([f"<sip:{_host_port(proxy)};lr>"] if proxy else []),
    ]


def escape_user(user: str) -> str:
    """A user part, with what it must not hold escaped."""
    return quote(user, safe=_USER)


def _host_port(place: SipHostPort) -> str:
    """host[:port][;transport=tcp]"""
    port = f":{place.port}" if place.port else ""
    transport = "" if place.transport in (None, "udp") else f";transport={place.transport}"
    return f"{bracketed(place.host)}{port}{transport}"
