"""Messages that a peer may send at each moment of a call, for a `Mutator`."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tests.sipcore.live_call import LiveCall, place_call
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.torture.message_mutator import Mutator

AT_ONCE = 50
"""No more than a socket's buffer holds."""
BEGINNINGS = (
    "INVITE",
    "INVITE",
    "INVITE",
    "REGISTER",
    "OPTIONS",
    "BYE",
    "CANCEL",
    "ACK",
    "REFER",
    "SUBSCRIBE",
    "MESSAGE",
)
WITHIN = ("INVITE", "UPDATE", "INFO", "PRACK", "OPTIONS", "NOTIFY", "REFER", "BYE")
HEADERS = (
    "Supported: 100rel, timer", "Session-Expires: 1800;refresher=uac", "Allow: INVITE, UPDATE", "Event: refer",
    "Authorization: Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:x\", response=\"0\"",
    "Replaces: 1@h;to-tag=2;from-tag=3", "Refer-To: <sip:x@127.0.0.1?Replaces=1>", "RAck: 1 1 INVITE",
    "P-Asserted-Identity: \"x\" <tel:+1>", "Diversion: <sip:x@y>;reason=busy", "Reason: Q.850;cause=16;text=\"x\"",
)  # fmt: skip
ANSWERS = ("180 Ringing", "183 Session Progress", "200 OK", "302 Moved", "401 Unauthorized", "422 Small", "486 Busy")


def initial_requests(raw: RawPhone) -> Iterator[bytes]:
    """Requests that begin a dialog or transaction, endless."""
    offers = [
        raw.offer("0"),
        raw.offer("96 9 0 101", "rtpmap:96 opus/48000/2", "fmtp:96 useinbandfec=1", "rtpmap:9 G722/8000", "ptime:20"),
        raw.offer("0", "crypto:1 AES_CM_128_HMAC_SHA1_80 inline:" + "A" * 40, "rtcp:9 IN IP4 127.0.0.1", "rtcp-mux"),
    ]
    while True:
        for number, method in enumerate(BEGINNINGS):
            body = offers[number % 3] if method in ("INVITE", "ACK") else ""
            yield raw.request(method, raw.dialog(), body=body, headers=HEADERS)


async def mutate_requests_in_call(phone: Phone, raw: RawPhone, mutate: Mutator) -> None:
    """`MAX_DECODING` mutated requests within an inbound call, any of which may end it."""
    async with RawPhone(phone.target) as caller:
        call = await LiveCall.make(phone, caller)
        for number in range(AT_ONCE):
            call.dialog.cseq += 1
            method = WITHIN[number % len(WITHIN)]
            body = raw.offer("0", "sendonly") if number % 2 else ""
            caller.send(mutate(caller.request(method, call.dialog, body=body, headers=HEADERS)))
        await raw.wait_processed()
        await call.leg.hangup()
        call.leg.release()


async def mutate_responses(phone: Phone, raw: RawPhone, mutate: Mutator) -> None:
    """`MAX_DECODING` mutated responses to an outbound INVITE."""
    async with RawPhone(phone.target) as other:
        leg, callee = await place_call(phone, other)
        mutate_callee(callee, mutate)
        for number in range(AT_ONCE):
            body = raw.offer("0") if number % 2 else ""
            callee._send(ANSWERS[number % len(ANSWERS)], callee.invite, body, headers=(*HEADERS, "RSeq: 1"))
        await raw.wait_processed()
        await leg.hangup()
        leg.release()


def mutate_callee(callee: RawCallee, mutate: Mutator) -> None:
    """Mutate all messages of this callee from now on."""
    send = callee.phone.send
    callee.phone.send = lambda data: send(mutate(data))  # type: ignore[method-assign]


def packets() -> Iterator[tuple[bytes, bytes]]:
    """The same packet of RTP, and one of RTCP, endless."""
    report = struct.pack(">BBHIQIIIIIIIII", 0x81, 200, 12, 0x5150, 1 << 60, 1, 2, 3, 0x5150, 0, 1, 0, 0, 0)
    names = struct.pack(">BBHIBB6s", 0x81, 202, 3, 0x5150, 1, 6, b"a@b.cd") + b"\0\0"
    packet = struct.pack(">BBHII", 0x80, 0, 1, 160, 0x5150) + b"\xff" * 160
    while True:
        yield packet, report + names
