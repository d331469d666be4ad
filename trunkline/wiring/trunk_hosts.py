"""Who finds the hosts of trunks, by the settings."""

from __future__ import annotations

import os

from config.setting_values import name_server_address
from config.settings import Settings
from sipcore.resolver.dns_client import DnsClient
from sipcore.resolver.sip_locator import SipLocator
from sipcore.resolver.system_resolver import SystemResolver
from sipcore.resolver.target import Transport
from sipcore.transport.listeners import ip_versions


def locator_of(settings: Settings, hosts: SystemResolver) -> SipLocator:
    """`hosts` asks the system, where name servers know nothing."""
    servers = DnsClient([name_server_address(each) for each in settings.sip.nameservers])
    speaks: list[Transport] = ["udp", "tcp", "tls"] if settings.sip.tcp else ["udp", "tls"]
    return SipLocator(servers, hosts.addresses, speaks, ip_versions(settings.sip.host), os.urandom(16))
