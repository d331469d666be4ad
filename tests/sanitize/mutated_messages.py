"""Sends mutated messages of every kind to an endpoint: `python -m tests.sanitize.mutated_messages COUNT [SEED]`.

Requests outside of dialogs over UDP and TCP, requests within calls, responses to outbound calls, RTP and RTCP; in
between and at the end calls must succeed. The same seed gives the same messages.
"""

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
from tests.sipcore.rtp.packet_spacing import reject_calls
from tests.sipcore.torture.dialog_messages import (
    AT_ONCE,
    initial_requests,
    mutate_requests_in_call,
    mutate_responses,
    packets,
)
from tests.sipcore.torture.message_mutator import Mutator

SETTINGS = EndpointSettings(codecs=("opus", "G722", "PCMU"), max_calls=100, max_invites_per_second=0)


async def send_udp_requests(phone: Phone, raw: RawPhone, mutate: Mutator) -> None:
    """Sends requests outside of dialogs over UDP."""
    source = initial_requests(raw)
    async with reject_calls(phone):
        for _ in range(AT_ONCE):
            raw.send(mutate(next(source)))
        await raw.wait_processed()


async def send_tcp_requests(phone: Phone, raw: RawPhone, mutate: Mutator) -> None:
    """Sends requests outside of dialogs over TCP, several over one connection, which the endpoint may close."""
    host, port = phone.target.split(":")
    source = initial_requests(raw)
    async with reject_calls(phone):
        for _ in range(5):
            _, writer = await asyncio.open_connection(host, int(port))
            with contextlib.suppress(ConnectionError):
                for _ in range(AT_ONCE // 5):
                    writer.write(mutate(next(source)))
                await writer.drain()
            writer.close()
        await raw.wait_processed()


async def send_rtp(phone: Phone, raw: RawPhone, mutate: Mutator) -> None:
    """Sends RTP and RTCP in a call."""
    async with RawPhone(phone.target) as caller:
        call = await LiveCall.make(phone, caller)
        assert caller._rtp_target is not None
        host, port = caller._rtp_target
        for number, (rtp, rtcp) in zip(range(AT_ONCE // 2), packets(), strict=False):
            caller.rtp.transport.sendto(mutate(rtcp), (host, port + 1))
            caller.rtp.transport.sendto(mutate(rtp), (host, port))
            if number % 10 == 0:
                await raw.wait_processed()
        await raw.wait_processed()
        await call.leg.hangup()
        call.leg.release()


KINDS = (send_udp_requests, send_udp_requests, send_tcp_requests, mutate_requests_in_call, mutate_responses, send_rtp)


async def main(count: int, seed: int) -> None:
    """Sends `count` messages; a call at the end must succeed."""
    mutate = Mutator(seed)
    sent = 0
    async with Phone(SETTINGS) as phone, RawPhone(phone.target) as raw:
        late = 0
        while sent < count:
            try:
                await KINDS[sent // AT_ONCE % len(KINDS)](phone, raw, mutate)
            except TimeoutError:  # a raw phone does not retransmit, and a slow machine loses packets
                late += 1
                assert late <= 1 + sent // 1000, f"{late} calls during the first {sent} messages failed"
            sent += AT_ONCE
            while not raw.sip.received.empty():
                raw.sip.received.get_nowait()
            if sent % 1000 == 0:
                phone.endpoint.log_guard_events()
                print(f"    {sent} of {count} messages", flush=True)
        call = await phone.call()
        await call.end()
    print(f"    {sent} messages, seed {seed}, {late} calls timed out; the last call succeeded")


if __name__ == "__main__":
    logging.disable()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4475))
