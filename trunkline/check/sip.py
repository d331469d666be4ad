"""What `trunkline check` says of SIP beyond its ports: addresses, audio ports and trunks."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from contextlib import closing
from ipaddress import ip_address
from typing import Any, Final

from calls.trunks.provisioning import trunk_destinations
from config.setting_values import PORTS_PER_CALL
from config.settings import Settings
from sipcore.resolver.dns_records import LookupFailed
from sipcore.resolver.sip_locator import SipLocator
from sipcore.resolver.system_resolver import SystemResolver
from sipcore.resolver.target import SipHostPort, ip_literal_targets
from sipcore.transport.listeners import default_local_address, ip_versions, is_wildcard
from storage.database import lock
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from trunkline.server.control_socket import query
from trunkline.wiring.sip import sip_locator

MOST_NAMED: Final = 3
"""Failures that are named in a line; the others are counted."""


async def addresses(settings: Settings) -> str:
    """What peers are told to send to."""
    sip = settings.sip
    if sip.public_address is not None:
        return f"peers are told {sip.public_address}, those in local_networks our own address"
    if not is_wildcard(sip.host):
        return f"peers are told {sip.host}"
    usual = [await asyncio.to_thread(default_local_address, sip.host, version) for version in ip_versions(sip.host)]
    private = any(ip_address(each) in network for each in usual for network in sip.local_networks)
    nat = "; behind NAT set [sip] public_address (TRUNKLINE_SIP__PUBLIC_ADDRESS)" if private else ""
    return f"peers are told the address on the way to them, by default {', '.join(usual)}{nat}"


async def rtp_ports(settings: Settings) -> str:
    """Whether the range is wide enough (that, the settings make sure of) and free."""
    first, last = settings.sip.rtp_port_range
    needed = PORTS_PER_CALL * settings.limits.max_calls
    room = (last - first + 1) // PORTS_PER_CALL
    facts = f"{settings.sip.rtp_ports} hold {room} calls, max_calls is {settings.limits.max_calls}"
    if await asyncio.to_thread(lock.is_held, settings.data_dir):
        return f"{facts}, in use by the running server"
    taken = await asyncio.to_thread(_taken, settings.sip.host, range(first, last + 1))
    if last - first + 1 - taken < needed:
        raise OSError(
            f"{facts}, but other programs use {taken} of the ports: set [sip] rtp_ports (TRUNKLINE_SIP__RTP_PORTS)"
        )
    return f"{facts}, {taken} ports in use by other programs" if taken else facts


def _taken(host: str, ports: range) -> int:
    """How many of the ports cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = 0
    for port in ports:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                taken += 1
    return taken


async def trunks(settings: Settings) -> str:
    """Whether the hosts of trunks can be found; while the server runs, how the trunks stand."""
    numbers = await _numbers(settings)
    if not numbers:
        return "no phone number has one yet"
    if await asyncio.to_thread(lock.is_held, settings.data_dir):
        return await _standing(settings)
    lost = await _lost(settings, numbers)
    if lost:
        raise OSError(_several(lost))
    return f"{len(numbers)}, all their hosts are found"


async def _numbers(settings: Settings) -> list[PhoneNumber]:
    database = Database(settings.database_url)
    try:
        await database.open()
        return await database.read(phone_numbers.trunks)
    finally:
        await database.close()


async def _lost(settings: Settings, numbers: Sequence[PhoneNumber]) -> list[str]:
    """Trunks whose hosts cannot be found, and why; one number stands for all that share a host."""
    places = {
        place: number.number
        for number in numbers
        for place in trunk_destinations(number)
        if place is not None and ip_literal_targets(place) is None
    }
    with closing(SystemResolver()) as hosts:
        locator = sip_locator(settings, hosts)
        found = await asyncio.gather(*(_why_lost(locator, place) for place in places))
    return [f"{number}: {place.host} {why}" for (place, number), why in zip(places.items(), found, strict=True) if why]


async def _why_lost(locator: SipLocator, place: SipHostPort) -> str | None:
    try:
        return None if (await locator.locate(place)).targets else "is not in the DNS"
    except LookupFailed as error:
        return f"cannot be looked up ({error})"


async def _standing(settings: Settings) -> str:
    """As the running server tells."""
    statuses: list[dict[str, Any]] = [fact async for fact in query(settings.data_dir, {"command": "sip.status"})]
    failed = [f"{each['number']}: {each['detail'] or 'failed'}" for each in statuses if each["state"] == "failed"]
    if failed:
        raise OSError(f"{_several(failed)}; see `trunkline sip status`")
    states = [each["state"] for each in statuses]
    return ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))


def _several(problems: Sequence[str]) -> str:
    more = len(problems) - MOST_NAMED
    return "; ".join([*problems[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])
