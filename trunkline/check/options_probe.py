"""Whether PBXs answer, in `trunkline doctor`: an OPTIONS request (RFC 3261, 11) to each trunk, without the server."""

from __future__ import annotations

import asyncio
import secrets
import socket
from contextlib import closing
from typing import Final

from calls.trunks.provisioning import trunk_destinations
from config.settings import Settings
from sipcore.resolver.dns_records import LookupFailed
from sipcore.resolver.system_resolver import SystemResolver
from sipcore.resolver.target import SipHostPort, SipTarget
from storage.database import server_lock
from storage.phone_numbers.phone_numbers import effective_trunk
from trunkline.check import sip as check_sip
from trunkline.check.host import Advice
from trunkline.wiring.endpoint_settings import sip_locator

TIMEOUT_S: Final = 3.0
"""Longest wait for an answer."""
_RETRANSMIT_S: Final = 0.5
"""T1 (RFC 3261, 17.1.1.1)."""


async def trunks(settings: Settings) -> str:
    """The state of trunks if the server runs, else whether each answers an OPTIONS request over UDP. Raises `OSError`
    for hosts that cannot be resolved and trunks that have failed, `Advice` for those that do not answer."""
    summary = await check_sip.trunks(settings)
    if await asyncio.to_thread(server_lock.is_locked, settings.data_dir):
        return summary
    numbers = await check_sip.read_numbers(settings)
    hosts: dict[SipHostPort, str] = {}
    for number in numbers:
        destination, proxy = trunk_destinations(number)
        # A network has no host to ask, and a trunk that is never qualified ignores OPTIONS.
        if "/" not in destination.host and (
            number.sip_qualify_seconds or effective_trunk(number).sip_mode != "ip_allowlist"
        ):
            hosts.setdefault(proxy or destination, number.number)
    if not hosts:
        return summary
    answers = await asyncio.gather(*(_answer_of(settings, host) for host in hosts))
    lines = [f"{number}: {host.host} {answer}" for (host, number), answer in zip(hosts.items(), answers, strict=True)]
    silent = [line for line in lines if line.endswith("does not answer")]
    if silent:
        raise Advice(
            f"{'; '.join(silent[: check_sip.MAX_LISTED])}: is the PBX up, does a firewall block UDP, does the PBX know "
            "this machine's address?"
        )
    return "\n".join(lines)


async def _answer_of(settings: Settings, host: SipHostPort) -> str:
    with closing(SystemResolver()) as resolver:
        try:
            targets = (await sip_locator(settings, resolver).locate(host)).targets
        except LookupFailed as error:
            return f"cannot be looked up ({error})"
    target = next(iter(targets), None)
    if target is None:
        return "is not in the DNS"
    if target.transport != "udp":
        return f"is asked over {target.transport.upper()} by the server only"
    answer = await options_answer(target)
    return "does not answer" if answer is None else f"answers {answer}"


async def options_answer(target: SipTarget, timeout_s: float = TIMEOUT_S) -> str | None:
    """Ask a host over UDP; returns status and reason of its answer, of whatever status, None without one."""
    family = socket.AF_INET6 if ":" in target.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.connect((target.address, target.port))
            request = _request(target, *sender.getsockname()[:2])
            async with asyncio.timeout(timeout_s):
                while True:
                    if (answer := await _exchange(sender, request)) is not None:
                        return answer
        except (TimeoutError, OSError):  # also a refused port (ICMP)
            return None


async def _exchange(sender: socket.socket, request: bytes) -> str | None:
    """Send the request; returns the status line's end of an answer that comes before the next retransmission."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sender, request)
    try:
        async with asyncio.timeout(_RETRANSMIT_S):
            while True:
                version, _, status = (await loop.sock_recv(sender, 65535)).decode(errors="replace").partition(" ")
                if version == "SIP/2.0":
                    return status.partition("\r\n")[0]
    except TimeoutError:
        return None


def _request(target: SipTarget, own_host: str, own_port: int) -> bytes:
    host, own = (f"[{each}]" if ":" in each else each for each in (target.address, own_host))
    token = secrets.token_hex(8)
    return (
        f"OPTIONS sip:{host}:{target.port} SIP/2.0\r\n"
        f"Via: SIP/2.0/UDP {own}:{own_port};rport;branch=z9hG4bK{token}\r\n"
        f"Max-Forwards: 70\r\nFrom: <sip:doctor@{own}>;tag={token[:8]}\r\nTo: <sip:{host}:{target.port}>\r\n"
        f"Call-ID: {token}@{own}\r\nCSeq: 1 OPTIONS\r\nContact: <sip:doctor@{own}:{own_port}>\r\n"
        "Content-Length: 0\r\n\r\n"
    ).encode()
