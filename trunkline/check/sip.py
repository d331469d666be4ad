"""SIP in `trunkline check`, besides its ports: advertised addresses, RTP ports and trunks."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from contextlib import closing
from ipaddress import ip_address
from typing import Any, Final

from calls.trunks.provisioning import trunk_destinations
from config.settings import Settings
from config.settings_values import PORTS_PER_CALL
from sipcore.resolver.dns_records import LookupFailed
from sipcore.resolver.sip_locator import SipLocator
from sipcore.resolver.system_resolver import SystemResolver
from sipcore.resolver.target import SipHostPort, ip_literal_targets
from sipcore.transport.listeners import default_local_address, ip_versions, is_wildcard
from storage.database import server_lock
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from trunkline.server.control_socket import query
from trunkline.wiring.endpoint_settings import sip_locator

MAX_LISTED: Final = 3
"""Failures that a line lists; the others are counted."""


async def addresses(settings: Settings) -> str:
    """The addresses that SIP and SDP advertise to peers."""
    sip = settings.sip
    if sip.public_address is not None:
        return f"peers get {sip.public_address}, peers in local_networks the local address"
    if not is_wildcard(sip.host):
        return f"peers get {sip.host}"
    local = [await asyncio.to_thread(default_local_address, sip.host, version) for version in ip_versions(sip.host)]
    is_private = any(ip_address(each) in network for each in local for network in sip.local_networks)
    nat = "; behind NAT set [sip] public_address (TRUNKLINE_SIP__PUBLIC_ADDRESS)" if is_private else ""
    return f"peers get the local address of the route to them, by default {', '.join(local)}{nat}"


async def rtp_ports(settings: Settings) -> str:
    """The RTP port range, which the settings check to be wide enough. Raises `OSError` if too many of its ports are in
    use."""
    first, last = settings.sip.rtp_port_range
    needed = PORTS_PER_CALL * settings.limits.max_calls
    capacity = (last - first + 1) // PORTS_PER_CALL
    ports = f"{settings.sip.rtp_ports} suffice for {capacity} calls, max_calls is {settings.limits.max_calls}"
    if await asyncio.to_thread(server_lock.is_locked, settings.data_dir):
        return f"{ports}, in use by the running server"
    used = await asyncio.to_thread(_count_used, settings.sip.host, range(first, last + 1))
    if last - first + 1 - used < needed:
        raise OSError(
            f"{ports}, but other programs use {used} of the ports: set [sip] rtp_ports (TRUNKLINE_SIP__RTP_PORTS)"
        )
    return f"{ports}, {used} ports in use by other programs" if used else ports


def _count_used(host: str, ports: range) -> int:
    """The number of ports that cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    used = 0
    for port in ports:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                used += 1
    return used


async def trunks(settings: Settings) -> str:
    """The states of trunks if the server runs; else whether their hosts can be resolved. Raises `OSError` for trunks
    that have failed."""
    numbers = await read_numbers(settings)
    if not numbers:
        return "no phone number has one yet"
    if await asyncio.to_thread(server_lock.is_locked, settings.data_dir):
        return await _states(settings)
    unresolved = await _unresolved(settings, numbers)
    if unresolved:
        raise OSError(_join(unresolved))
    return f"{len(numbers)}, all their hosts are resolved"


async def read_numbers(settings: Settings) -> list[PhoneNumber]:
    """The phone numbers with a trunk."""
    database = Database(settings.database_url)
    try:
        await database.open()
        return await database.read(phone_numbers.numbers_with_trunk)
    finally:
        await database.close()


async def _unresolved(settings: Settings, numbers: Sequence[PhoneNumber]) -> list[str]:
    """The trunk hosts that cannot be resolved, each with its error and with one of the numbers that use it."""
    destinations = {
        destination: number.number
        for number in numbers
        for destination in trunk_destinations(number)
        if destination is not None and ip_literal_targets(destination) is None
    }
    with closing(SystemResolver()) as resolver:
        locator = sip_locator(settings, resolver)
        errors = await asyncio.gather(*(_resolve_error(locator, destination) for destination in destinations))
    return [
        f"{number}: {destination.host} {error}"
        for (destination, number), error in zip(destinations.items(), errors, strict=True)
        if error
    ]


async def _resolve_error(locator: SipLocator, destination: SipHostPort) -> str | None:
    try:
        return None if (await locator.locate(destination)).targets else "is not in the DNS"
    except LookupFailed as error:
        return f"cannot be looked up ({error})"


async def _states(settings: Settings) -> str:
    """The number of trunks in each state, from the running server. Raises `OSError` with the failed ones."""
    statuses: list[dict[str, Any]] = [fact async for fact in query(settings.data_dir, {"command": "sip.status"})]
    failed = [f"{each['number']}: {each['detail'] or 'failed'}" for each in statuses if each["state"] == "failed"]
    if failed:
        raise OSError(f"{_join(failed)}; see `trunkline sip status`")
    states = [each["state"] for each in statuses]
    return ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))


def _join(problems: Sequence[str]) -> str:
    more = len(problems) - MAX_LISTED
    return "; ".join([*problems[:MAX_LISTED], *([f"and {more} more"] if more > 0 else [])])
