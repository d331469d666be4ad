"""Checks of the host in `trunkline doctor`: addresses and NAT, the API's certificate, the clock, real-time
priority, free disk space. A check raises `OSError` with the remedy, or `Advice` where the server works without it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import psutil

from config.clock import utc_now
from config.own_addresses import own_addresses
from config.settings import Settings
from config.special_addresses import non_unicast_kind
from sipcore.settings import TlsFiles
from sipcore.transport.listeners import is_wildcard
from sipcore.transport.tls_identity import EXPIRES_SOON_DAYS, TlsIdentity, read_identity
from storage.database.disk_space import MAX_RESERVE_SHARE, MIB
from trunkline.certificates import local_certificate

OLDEST_PLAUSIBLE: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""A clock before this is wrong."""
_TIMEX_BYTES: Final = 256
"""More than `struct timex` of adjtimex(2) has."""
_STATUS_OFFSET: Final = 5 * ctypes.sizeof(ctypes.c_long)
_STA_UNSYNC: Final = 0x40


class Advice(Exception):
    """The server works, but something should be changed; the message says what."""


async def network(settings: Settings) -> str:
    """This machine's addresses, and whether those of the settings are among them. Raises `OSError` and `Advice`."""
    sip, own = settings.sip, await asyncio.to_thread(own_addresses)
    interfaces = await asyncio.to_thread(_interfaces)
    if not is_wildcard(sip.host) and sip.host not in own:
        raise OSError(f"[sip] host {sip.host} is no address of this machine, which has {interfaces}: correct it")
    if not interfaces:
        raise Advice("no interface but loopback has an address: phones on other machines cannot reach this server")
    if sip.public_address is None:
        return interfaces
    public = str(sip.public_address)
    if (kind := non_unicast_kind(public)) is not None or sip.public_address.is_loopback:
        raise OSError(f"[sip] public_address {public} is {kind or 'loopback'}: set the address that peers see")
    if public in own:
        return f"{interfaces}; [sip] public_address {public} is one of them: there is no NAT"
    ports = f"UDP port {sip.port} and UDP ports {sip.rtp_ports}"
    return f"{interfaces}; the NAT router with {public} must forward {ports} to this machine"


def _interfaces() -> str:
    """The interfaces with an address that others can reach: `eth0 192.0.2.4`."""
    found = []
    for name, addresses in psutil.net_if_addrs().items():
        texts = [
            each.address.partition("%")[0] for each in addresses if each.family in (socket.AF_INET, socket.AF_INET6)
        ]
        texts = [each for each in texts if not (ip_address(each).is_loopback or ip_address(each).is_link_local)]
        found += [f"{name} {' '.join(texts)}"] if texts else []
    return ", ".join(found)


async def api_certificate(settings: Settings) -> str:
    """The certificate of the API. Raises `OSError` if it has expired or is for other names, and `Advice` before it
    expires."""
    api = settings.api
    if api.tls_cert is None:
        if not api.https_port:
            return "none, the API uses HTTP ([api] https_port or tls_cert); a reverse proxy may add HTTPS"
        return await asyncio.to_thread(_local_certificate, settings)
    identity = await asyncio.to_thread(read_identity, TlsFiles(api.tls_cert, api.tls_key))
    host = str(urlsplit(api.public_url or "").hostname or "")
    if host and not _covers(identity, host):
        names = ", ".join(identity.names) or "no name"
        raise OSError(f"{api.tls_cert} is for {names}, not for {host} of [api] public_url: get one for this name")
    days = identity.days_left(utc_now())
    if days is not None and days < 0:
        raise OSError(f"{api.tls_cert} expired {-days} days ago: renew it")
    text = f"{api.tls_cert} is for {', '.join(identity.names) or 'no name'}, {days} days left"
    if days is not None and days < EXPIRES_SOON_DAYS:
        raise Advice(f"{text}: renew it")
    return text


def _local_certificate(settings: Settings) -> str:
    """The certificate of the local authority. Raises `OSError` and `Advice`."""
    file, now, command = settings.local_certificate_file, utc_now(), "`trunkline web certificate`"
    server, authority = local_certificate.read_server(settings), local_certificate.read_authority(settings)
    if server is None or authority is None:
        raise Advice(f"{file} is not there or unusable: the server makes it when it starts, or {command}")
    if authority.certificate.not_valid_after_utc < now:
        raise OSError(f"the authority {settings.local_authority_file} has expired: {command} --new-authority")
    if not local_certificate.is_issued_by(server, authority):
        raise OSError(f"{file} is not of the authority {settings.local_authority_file}: {command}")
    days = (server.certificate.not_valid_after_utc - now).days
    if days < 0:
        raise OSError(f"{file} expired {-days} days ago: {command}, and see why the server does not renew it")
    lacks = local_certificate.wanted_names(settings).without(server.names)
    if lacks:
        raise Advice(f"{file} is not for {lacks}: {command} tells what to do")
    return f"{file} is for {server.names}, {days} days left; devices must trust {settings.local_authority_file}"


def _covers(identity: TlsIdentity, host: str) -> bool:
    """True if one of the certificate's names is the host, or a wildcard for it (RFC 9525, 6.3)."""
    names = {name.lower() for name in identity.names}
    return host.lower() in names or f"*.{host.lower().partition('.')[2]}" in names


async def clock(_: Settings) -> str:
    """The clock. Raises `OSError` if it is wrong, and `Advice` if nothing keeps it right."""
    now = utc_now()
    if now < OLDEST_PLAUSIBLE:
        raise OSError(f"it is {now:%Y-%m-%d} here: set the clock; certificates and signatures depend on it")
    synchronized = _is_synchronized()
    if synchronized is False:
        raise Advice(
            f"{now:%Y-%m-%d %H:%M:%S} UTC, not synchronized by NTP: enable systemd-timesyncd or chrony (in a "
            "container: on its host)"
        )
    return f"{now:%Y-%m-%d %H:%M:%S} UTC{', synchronized by NTP' if synchronized else ''}"


def _is_synchronized() -> bool | None:
    """Whether the kernel's clock is synchronized (adjtimex(2)); None if it cannot be found out."""
    try:
        buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
        if ctypes.CDLL(None).adjtimex(buffer) < 0:
            return None
    except (OSError, AttributeError):
        return None
    return not ctypes.c_int.from_buffer(buffer, _STATUS_OFFSET).value & _STA_UNSYNC


async def priority(_: Settings) -> str:
    """Whether threads may have real-time priority, as the audio needs on a busy machine. Raises `Advice`."""
    thread = ThreadPoolExecutor(1)  # of its own: the priority ends with it
    may = await asyncio.get_running_loop().run_in_executor(thread, _may_be_realtime)
    thread.shutdown(wait=False)
    if not may:
        raise Advice(
            "audio has ordinary priority, and may be late on a busy machine: set LimitRTPRIO=20 in the systemd unit, "
            "or docker run --cap-add SYS_NICE"
        )
    return "audio gets real-time priority"


def _may_be_realtime() -> bool:
    """Gives the calling thread the lowest real-time priority."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_min(os.SCHED_FIFO)))
    except OSError:
        return False
    return True


async def disk(settings: Settings) -> str:
    """The free space. Raises `OSError` if less is free than the reserve for calls and webhooks."""
    folder = settings.data_dir if settings.data_dir.exists() else settings.data_dir.absolute().parent
    usage = await asyncio.to_thread(shutil.disk_usage, folder)
    reserve = min(settings.limits.disk_reserve_mb * MIB, usage.total // MAX_RESERVE_SHARE)
    text = f"{usage.free / 2**30:.1f} of {usage.total / 2**30:.1f} GiB are free on the disk of {settings.data_dir}"
    if usage.free < reserve:
        raise OSError(
            f"{text}, less than the reserve of {reserve / MIB:.0f} MiB: free some space, keep recordings for fewer "
            "days (`trunkline org set`), or lower [limits] disk_reserve_mb"
        )
    return text
