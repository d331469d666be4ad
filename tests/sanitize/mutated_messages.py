"""Spoilt messages of every kind to an endpoint of ours (`python -m tests.sanitize.mutated_messages COUNT [SEED]`):
requests that begin something, over datagrams and over streams, requests within calls, answers to calls of ours, RTP and
RTCP; in between and at the end, calls go on. Which messages they are, the seed says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys

import structlog

from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.rtp.packet_spacing import turned_away
from tests.sipcore.torture.dialog_messages import AT_ONCE, beginnings, in_answer, packets, within_a_call
from tests.sipcore.torture.message_mutator import Mutator

SETTINGS = EndpointSettings(codecs=("opus", "G722", "PCMU"), max_calls=100, max_invites_per_second=0)


async def over_datagrams(phone: Phone, raw: RawPhone, mutate: Mutator) -> None:
    """Requests that begin something."""
    source = beginnings(raw)
    async with turned_away(phone):
        for _ in range(AT_ONCE):
            raw.send(mutate(next(source)))
        await raw.settled()


async def over_streams(phone: Phone, raw: RawPhone, mutate: Mutator) -> None:
    """The same, several over one connection, which the other side may close."""
    host, port = phone.target.split(":")
    source = beginnings(raw)
    async with turned_away(phone):
        for _ in range(5):
            _, writer = await asyncio.open_connection(host, int(port))
            with contextlib.suppress(ConnectionError):
                for _ in range(AT_ONCE // 5):
                    writer.write(mutate(next(source)))
                await writer.drain()
            writer.close()
        await raw.settled()


async def as_sound(phone: Phone, raw: RawPhone, mutate: Mutator) -> None:
    """RTP and RTCP of a call."""
    async with RawPhone(phone.target) as caller:
        call = await LiveCall.made(phone, caller)
        assert caller._rtp_target is not None
        host, port = caller._rtp_target
        for number, (rtp, rtcp) in zip(range(AT_ONCE // 2), packets(), strict=False):
            caller.rtp.transport.sendto(mutate(rtcp), (host, port + 1))
            caller.rtp.transport.sendto(mutate(rtp), (host, port))
            if number % 10 == 0:
                await raw.settled()
        await raw.settled()
        await call.leg.hangup()
        call.leg.release()


KINDS = (over_datagrams, over_datagrams, over_streams, within_a_call, in_answer, as_sound)


async def main(count: int, seed: int) -> None:
    """Send them all; a call at the end must come about."""
    mutate = Mutator(seed)
    sent = 0
    async with Phone(SETTINGS) as phone, RawPhone(phone.target) as raw:
        late = 0
        while sent < count:
            try:
                await KINDS[sent // AT_ONCE % len(KINDS)](phone, raw, mutate)
            except TimeoutError:  # a raw phone says everything once, and a slow machine loses some of it
                late += 1
                assert late <= 1 + sent // 1000, f"{late} of the first {sent} messages' calls did not come about"
            sent += AT_ONCE
            while not raw.sip.received.empty():
                raw.sip.received.get_nowait()
            if sent % 1000 == 0:
                phone.endpoint.log_guard_events()
                print(f"    {sent} of {count} messages", flush=True)
        call = await phone.call()
        await call.end()
    print(f"    {sent} messages, seed {seed}, {late} calls late; then a call came about")


if __name__ == "__main__":
    logging.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4475))
