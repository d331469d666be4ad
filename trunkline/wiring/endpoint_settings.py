"""SIP by the settings: the endpoint's settings, and the RFC 3263 locator of trunk hosts."""

from __future__ import annotations

import os

from config.settings import Settings
from config.settings_values import name_server_address
from sipcore.resolver.dns_client import DnsClient
from sipcore.resolver.sip_locator import SipLocator
from sipcore.resolver.system_resolver import SystemResolver
from sipcore.resolver.target import Transport
from sipcore.settings import EndpointSettings, TlsFiles
from sipcore.transport.listeners import ip_versions


def endpoint_settings(settings: Settings) -> EndpointSettings:
    """The SIP endpoint's settings, from `[sip]` and `[limits]`."""
    sip = settings.sip
    first, last = sip.rtp_port_range
    return EndpointSettings(
        host=sip.host,
        port=sip.port,
        tcp=sip.tcp,
        srtp=sip.srtp,
        tls_port=sip.tls_port,
        tls=TlsFiles(sip.tls_cert, sip.tls_key, sip.tls_ca),
        tls_verify=sip.tls_verify,
        local_networks=sip.local_networks,
        media_networks=sip.media_networks,
        public_address=str(sip.public_address) if sip.public_address else None,
        rtp_first_port=first,
        rtp_last_port=last,
        symmetric_rtp=sip.symmetric_rtp,
        codecs=sip.codecs,
        max_calls=settings.limits.max_calls,
        refuse_unknown=sip.unknown_source == "403",
        session_timer_s=sip.session_timer_s,
        max_invites_per_second=sip.max_invites_per_second,
    )


def sip_locator(settings: Settings, resolver: SystemResolver) -> SipLocator:
    """The locator of trunk hosts (RFC 3263). `resolver` resolves the names that the name servers do not know."""
    dns = DnsClient([name_server_address(each) for each in settings.sip.nameservers])
    transports: list[Transport] = ["udp", "tcp", "tls"] if settings.sip.tcp else ["udp", "tls"]
    return SipLocator(dns, resolver.addresses, transports, ip_versions(settings.sip.host), os.urandom(16))
