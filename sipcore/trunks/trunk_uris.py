"""The URIs of a trunk: registrar, address of record, identity, request URI and Route set."""

from __future__ import annotations

from sipcore.dialogs.refer_client import ReferDomain
from sipcore.messages.headers import bracketed, escape_user, is_ip_address
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.trunks.trunk import Trunk


def registrar_uri(trunk: Trunk) -> str:
    """The request URI of REGISTER: without a user (RFC 3261 10.2)."""
    return host_port_uri(trunk.host_port)


def host_port_uri(host_port: SipHostPort) -> str:
    """The URI of a host and port, without a user."""
    return f"sip:{_host_port(host_port)}"


def user_and_domain(trunk: Trunk) -> tuple[str, str]:
    """The user part, escaped, and the domain of a trunk that registers. A user that contains a domain keeps that."""
    user, at, domain = trunk.user.rpartition("@")
    return (escape_user(user), domain) if at else (escape_user(trunk.user), bracketed(trunk.host))


def address_of_record(trunk: Trunk) -> str:
    """The address of record: From and To of REGISTER."""
    return "sip:{}@{}".format(*user_and_domain(trunk))


def identity_uri(trunk: Trunk) -> str:
    """The identity of our calls: the number at the registrar."""
    return f"sip:{escape_user(trunk.number or trunk.user)}@{bracketed(trunk.host)}"


def request_uri(trunk: Trunk, to: str) -> str:
    """The request URI of an INVITE."""
    return f"sip:{escape_user(to)}@{_host_port(trunk.host_port)}"


def refer_domain(trunk: Trunk) -> ReferDomain:
    """The domain of the targets that a peer is referred to: that of our request URIs."""
    return ReferDomain(_host_port(trunk.host_port), trunk.credentials)


def request_uri_at(trunk: Trunk, target: SipTarget, to: str) -> str:
    """The request URI of an INVITE through a trunk without an account: by address, except over TLS, which verifies the
    host name."""
    if target.transport == "tls":
        return request_uri(trunk, to)
    return f"sip:{escape_user(to)}@{bracketed(target.address)}:{target.port};transport={target.transport}"


def route_set(trunk: Trunk, target: SipTarget) -> list[str]:
    """The Route set, first hop first: the outbound proxy, and before it the target of the proxy or the registrar, which
    is not sent: PJSIP follows a route that has `hide` and removes it. TLS goes by the host name, which it verifies (RFC
    5922 4), and PJSIP resolves to the same target."""
    proxy = trunk.outbound_proxy
    first_hop = proxy or trunk.host_port
    hidden = _host_port(SipHostPort(target.address, target.port, target.transport))
    return [
        *([] if is_ip_address(first_hop.host) or target.transport == "tls" else [f"<sip:{hidden};lr;hide>"]),
        *([f"<sip:{_host_port(proxy)};lr>"] if proxy else []),
    ]


def _host_port(host_port: SipHostPort) -> str:
    """host[:port][;transport=tcp]"""
    port = f":{host_port.port}" if host_port.port else ""
    transport = "" if host_port.transport in (None, "udp") else f";transport={host_port.transport}"
    return f"{bracketed(host_port.host)}{port}{transport}"
