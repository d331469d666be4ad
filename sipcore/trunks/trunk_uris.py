"""The URIs of a trunk: its registrar, who we are there, whom we call, and which way requests go."""

from __future__ import annotations

from urllib.parse import quote

from sipcore.messages.headers import bracketed, is_ip_address
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.trunks.trunk import Trunk

_USER = "-_.!~*'()&=+$,;?/"
"""What needs no escapes in the user part, beside letters and digits (RFC 3261 25.1)."""


def registrar_of(trunk: Trunk) -> str:
    """The request URI of REGISTER: without a user (RFC 3261 10.2)."""
    return place_uri(trunk.host_port)


def place_uri(place: SipHostPort) -> str:
    """Whoever answers for SIP at a place."""
    return f"sip:{_where(place)}"


def account_of(trunk: Trunk) -> tuple[str, str]:
    """Who a registered trunk is: the user part, with its escapes, and the domain. A user that has a domain in it keeps
    that."""
    user, at, domain = trunk.user.rpartition("@")
    return (escaped(user), domain) if at else (escaped(trunk.user), bracketed(trunk.host))


def aor_of(trunk: Trunk) -> str:
    """From and To of REGISTER."""
    return "sip:{}@{}".format(*account_of(trunk))


def identity_of(trunk: Trunk) -> str:
    """Who calls: the number, at the registrar."""
    return f"sip:{escaped(trunk.number or trunk.user)}@{bracketed(trunk.host)}"


def uri_of(trunk: Trunk, to: str) -> str:
    """Whom an INVITE goes to."""
    return f"sip:{escaped(to)}@{_where(trunk.host_port)}"


def uri_at(trunk: Trunk, target: SipTarget, to: str) -> str:
    """The same for a trunk without an account: by address, but for TLS, which goes by the name that the peer must
    prove."""
    if target.transport == "tls":
        return uri_of(trunk, to)
    return f"sip:{escaped(to)}@{bracketed(target.address)}:{target.port};transport={target.transport}"


def routes_of(trunk: Trunk, target: SipTarget) -> list[str]:
    """Route values, first hop first: the outbound proxy, and before it the address that was chosen for it or for the
    registrar. That one stays with us: PJSIP follows a route that has `hide`, and does not send it. TLS goes by the
    name, which the peer must prove (RFC 5922 4); PJSIP finds the same address for it."""
    proxy = trunk.outbound_proxy
    first = proxy or trunk.host_port
    hidden = _where(SipHostPort(target.address, target.port, target.transport))
    return [
        *([] if is_ip_address(first.host) or target.transport == "tls" else [f"<sip:{hidden};lr;hide>"]),
        *([f"<sip:{_where(proxy)};lr>"] if proxy else []),
    ]


def escaped(user: str) -> str:
    """A user part, with what it must not hold escaped."""
    return quote(user, safe=_USER)


def _where(place: SipHostPort) -> str:
    """host[:port][;transport=tcp]"""
    port = f":{place.port}" if place.port else ""
    transport = "" if place.transport == "udp" else f";transport={place.transport}"
    return f"{bracketed(place.host)}{port}{transport}"
