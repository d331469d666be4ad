"""Connections that send too much, too slowly or without end affect no other peer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.rtp.packet_spacing import assert_even_audio

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU",), max_calls=40)
MEGABYTE = 1 << 20
START = b"OPTIONS sip:100@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bKendless\r\n"
ENDLESS = {
    "headers": (START, b"X: y\r\n"),
    "one header": (START + b"X: ", b"y"),
    "a body": (START + b"Content-Length: 999999999\r\n\r\n", b"x"),
    "line ends": (b"", b"\r\n"),
    "nothing": (b"", b"\0"),
}


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw
    phone.endpoint.log_guard_events()


async def connected(phone: Phone, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    target, port = phone.target.split(":")
    return await asyncio.open_connection(target, int(port), local_addr=(host, 0))


@pytest.mark.parametrize("what", ENDLESS)
async def test_endless_stream_does_not_disturb_audio(phone: Phone, raw: RawPhone, what: str) -> None:
    start, more = ENDLESS[what]
    _, writer = await connected(phone)
    writer.write(start)
    async with assert_even_audio(phone):
        with contextlib.suppress(ConnectionError):
            for _ in range(16):
                writer.write(more * (MEGABYTE // 16 // len(more)))
                await writer.drain()
        assert (await raw.options()).status == 200
    writer.close()
    call = await phone.call(";transport=tcp")
    await call.end()


async def test_200_slow_senders_delay_no_other_peer(phone: Phone, raw: RawPhone) -> None:
    request = raw.request("OPTIONS", raw.dialog(), via="TCP")
    phone.endpoint.set_sources(["127.0.0.0/8"])
    senders = [await connected(phone, f"127.0.2.{1 + number % 5}") for number in range(200)]
    async with assert_even_audio(phone):
        for at in range(20):
            for _, writer in senders:
                writer.write(request[at : at + 1])
            call = await phone.call(";transport=tcp")
            await call.end()
    for _, writer in senders:
        writer.write(request[20:])
    for reader, writer in senders:
        assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"SIP/2.0 200")
        writer.close()
