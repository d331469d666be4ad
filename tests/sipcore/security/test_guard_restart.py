"""A new endpoint in the same process has no connections of the one before."""

from __future__ import annotations

import asyncio

from sipcore import _native
from sipcore.settings import EndpointSettings
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone


async def test_connections_open_at_the_stop_are_removed() -> None:
    settings = EndpointSettings(codecs=("PCMU",), max_calls=4)
    async with Phone(settings) as first, RawPhone(first.target) as raw:
        port = int(first.target.split(":")[1])
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in opened:
            writer.write(b"OPTIONS sip:x SIP/2.0\r\n")
        await raw.options()
    async with Phone(settings) as second, RawPhone(second.target) as raw:
        _native.guard_message_timeout(50)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(second.target.split(":")[1]))
        assert await asyncio.wait_for(reader.read(), 5) == b"", "the guard has looked at all that it knows"
        assert (await raw.options()).status == 200
        _native.guard_message_timeout(10_000)
    for _, each in (*opened, (reader, writer)):
        each.close()
