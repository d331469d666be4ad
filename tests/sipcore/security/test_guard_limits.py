"""Limits of the guard: networks of sources, INVITE floods, connections, and its own memory."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
from collections.abc import AsyncIterator
from ipaddress import IPv4Address

import pytest
import pytest_asyncio

from sipcore import _native
from sipcore.security import source_guard
from sipcore.settings import EndpointSettings
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.security.test_source_guard import guard_log_lines

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40, max_invites_per_second=10)


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    phone.endpoint.log_guard_events()
    async with RawPhone(phone.target) as raw:
        yield raw
    phone.endpoint.set_sources(["127.0.0.1"])
    _native.guard_message_timeout(10_000)


async def is_known(phone: Phone, address: str) -> bool:
    """True if OPTIONS from there is answered; the response to a later one from a known address shows that it was
    not."""
    async with RawPhone(phone.target, address) as peer, RawPhone(phone.target) as sure:
        peer.send(peer.request("OPTIONS", peer.dialog()))
        await sure.options()
        return not peer.sip.received.empty()


@pytest.mark.parametrize(
    ("sources", "known", "unknown"),
    [
        (["127.1.2.0/24"], ["127.1.2.0", "127.1.2.255"], ["127.1.1.255", "127.1.3.0"]),
        (["127.1.2.3/32", "::/0"], ["127.1.2.3"], ["127.1.2.2"]),
        (["127.1.0.0/16", "127.1.2.0/24", "127.2.3.4"], ["127.1.2.9", "127.1.9.9", "127.2.3.4"], ["127.2.3.5"]),
        (["127.1.2.128/25"], ["127.1.2.128"], ["127.1.2.127"]),
        (["127.0.0.0/8"], ["127.99.98.97"], []),
        (["0.0.0.0/0"], ["127.99.98.97"], []),
        (["::ffff:127.3.3.3", "::ffff:127.4.0.0/112"], ["127.3.3.3", "127.4.0.9"], ["127.5.0.9"]),
        (["127.1.2.3/33", "127.1.2.3/", "127.1.2.3/x", "x", "", "127.1.2.3/-1"], [], ["127.1.2.3"]),
    ],
)
async def test_network_matches_exactly_its_addresses(
    phone: Phone, raw: RawPhone, sources: list[str], known: list[str], unknown: list[str]
) -> None:
    phone.endpoint.set_sources(["127.0.0.1", *sources])
    assert [await is_known(phone, address) for address in known] == [True] * len(known)
    assert [await is_known(phone, address) for address in unknown] == [False] * len(unknown)


async def test_thousands_of_sources_are_distinguished(phone: Phone, raw: RawPhone) -> None:
    singles = [f"127.{10 + number // 250}.{number % 250}.7" for number in range(5000)]
    networks = [f"127.{100 + number // 200}.{number % 200}.0/{24 + number % 8}" for number in range(5000)]
    phone.endpoint.set_sources(["127.0.0.1", *singles, *networks])
    assert await is_known(phone, "127.20.100.7")
    assert await is_known(phone, "127.110.96.200")
    assert not await is_known(phone, "127.20.100.8")
    assert not await is_known(phone, "127.90.1.1")


async def test_probes_may_be_networks_too(phone: Phone, raw: RawPhone) -> None:
    phone.endpoint.set_sources(["127.0.0.1"], probes=["127.1.2.0/24"])
    assert await is_known(phone, "127.1.2.3")
    assert not await is_known(phone, "127.1.3.3")


async def test_invites_above_the_rate_limit_get_503_and_one_log_line(phone: Phone, raw: RawPhone) -> None:
    before = source_guard.drop_counts()["too_many_invites"]
    answers = []
    for _ in range(60):
        dialog = raw.dialog()
        branch = raw.invite(dialog, raw.offer("0"))
        if (answer := await raw.next_message()).status == 503:
            answers.append(answer)
        else:
            await (await phone.next_leg()).reject(486)
            assert (await raw.final_response("INVITE")).status == 486
        raw.send(raw.request("ACK", dialog, branch=branch))
    assert 60 - 20 - 15 < len(answers) <= 60 - 20, "20 at once, and 10 a second"
    assert {answer.header("Retry-After") for answer in answers} == {"2"}
    assert (await raw.options()).status == 200
    assert guard_log_lines(phone) == [("sip.too_many_invites", "127.0.0.1", len(answers))]
    assert source_guard.drop_counts()["too_many_invites"] - before == len(answers)
    async with RawPhone(phone.target, "127.1.2.3") as other:
        phone.endpoint.set_sources(["127.0.0.1", "127.1.2.3"])
        other.invite(other.dialog(), other.offer("0"))
        leg = await phone.next_leg()
        await leg.reject(486)
        assert (await other.final_response("INVITE")).status == 486, "others are not concerned"


async def connect(phone: Phone, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(phone.target.split(":")[1]), local_addr=(host, 0))


async def test_connection_without_a_complete_message_is_closed(phone: Phone, raw: RawPhone) -> None:
    _native.guard_message_timeout(300)
    request = raw.request("OPTIONS", raw.dialog(), via="TCP")
    silent, half, alive = [await connect(phone) for _ in range(3)]
    half[1].write(request[:100])
    alive[1].write(request)
    assert (await alive[0].readuntil(b"\r\n\r\n")).startswith(b"SIP/2.0 200")
    assert await asyncio.wait_for(silent[0].read(), 5) == b""
    assert await asyncio.wait_for(half[0].read(), 5) == b""
    assert guard_log_lines(phone) == [("sip.slow_connection", "127.0.0.1", 2)]
    alive[1].write(raw.request("OPTIONS", raw.dialog(), via="TCP"))
    assert (await alive[0].readuntil(b"\r\n\r\n")).startswith(b"SIP/2.0 200"), "between messages there is all the time"
    alive[1].write(request[:100])
    assert await asyncio.wait_for(alive[0].read(), 5) == b"", "within one there is not"
    for _, writer in (silent, half, alive):
        writer.close()


async def test_keep_alives_alone_do_not_keep_a_connection_open(phone: Phone, raw: RawPhone) -> None:
    _native.guard_message_timeout(300)
    reader, writer = await connect(phone)
    writer.write(b"\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), 5)).strip() == b""
    writer.close()


async def test_a_source_has_a_bounded_number_of_connections(phone: Phone, raw: RawPhone) -> None:
    phone.endpoint.set_sources(["127.0.0.1", "127.1.2.3"])
    opened = [await connect(phone) for _ in range(64)]
    reader, writer = await connect(phone)
    assert await asyncio.wait_for(reader.read(), 5) == b""
    assert guard_log_lines(phone) == [("sip.too_many_connections", "127.0.0.1", 1)]
    other = await connect(phone, "127.1.2.3")
    other[1].write(raw.request("OPTIONS", raw.dialog(), via="TCP"))
    assert (await asyncio.wait_for(other[0].readuntil(b"\r\n\r\n"), 5)).startswith(b"SIP/2.0 200")
    opened[0][1].close()
    await opened[0][1].wait_closed()
    await raw.options()
    again = await connect(phone)
    again[1].write(raw.request("OPTIONS", raw.dialog(), via="TCP"))
    assert (await asyncio.wait_for(again[0].readuntil(b"\r\n\r\n"), 5)).startswith(b"SIP/2.0 200")
    for _, each in (*opened[1:], (reader, writer), other, again):
        each.close()


def flood(phone: Phone, request: bytes, first: int, count: int) -> None:
    """A request of as many sources, all addresses of this machine, from one socket (ip(7), IP_PKTINFO)."""
    host, port = phone.target.split(":")
    start = int(IPv4Address("127.64.0.0"))
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.bind(("0.0.0.0", 0))
        for number in range(first, first + count):
            info = struct.pack("=I4s4s", 0, IPv4Address(start + number).packed, b"\0\0\0\0")
            sender.sendmsg(
                [request], [(socket.IPPROTO_IP, getattr(socket, "IP_PKTINFO", 8), info)], 0, (host, int(port))
            )


async def test_100000_unknown_sources_are_counted_in_bounded_memory(phone: Phone, raw: RawPhone) -> None:
    request = raw.request("OPTIONS", raw.dialog())
    before, memory_kb = source_guard.drop_counts()["unknown_source"], []
    for first in range(0, 100_000, 100):  # no more at once than a socket's buffer holds
        flood(phone, request, first, 100)
        await raw.options()
        memory_kb.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert source_guard.drop_counts()["unknown_source"] - before > 90_000, "they have come through"
    assert memory_kb[-1] - memory_kb[200] < 1500, "their addresses alone would take 3.7 MB"
    lines = guard_log_lines(phone)
    assert len(lines) == 65
    assert lines[-1][:2] == ("sip.unknown_source", "further sources")
