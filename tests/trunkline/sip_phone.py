"""A SIP phone that a test controls: it makes a call, sends audio and DTMF, and keeps the received audio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

import numpy as np

from media.audio_port import Samples
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone, Rtp, parse
from tests.sipcore.tones import alaw, from_alaw, from_mulaw, mulaw

FRAME = 160
"""Samples of a packet: 20 ms at 8 kHz."""
PCMU, PCMA, COMFORT_NOISE = 0, 8, 13
"""Payload types of RFC 3551."""
FIRST_DYNAMIC = 96
SILENCE = {PCMU: b"\xff" * FRAME, PCMA: b"\xd5" * FRAME}
ENCODERS, DECODERS = {PCMU: mulaw, PCMA: alaw}, {PCMU: from_mulaw, PCMA: from_alaw}
EVENT = 101
"""Payload type of telephone-event in the phone's offer."""


class PhoneCall:
    """A G.711 call of a phone at 127.0.0.1. The phone sends a packet for each received one, so both sides are in
    step."""

    def __init__(self, phone: RawPhone, number: str) -> None:
        self.phone = phone
        self.dialog = dialled(phone, number)
        self.packets: list[Rtp] = []
        self._to_say: deque[tuple[int, bytes] | None] = deque()
        self._came = asyncio.Event()
        self._talking: asyncio.Task[None] | None = None
        self._timestamp = self._began = self._sequence = 0
        self.codec = PCMU
        """The payload type of the audio that is sent from now on."""
        self.event_kind = EVENT
        """The payload type of the digits that are sent and received."""
        self.headers: tuple[str, ...] = ()
        """More headers of the INVITE or of the 200."""

    @property
    def sip_call_id(self) -> str:
        """The call's Call-ID header."""
        return self.dialog.call_id

    async def __aenter__(self) -> Self:
        self.phone.invite(self.dialog, self.offer(), self.headers)
        self._take_answer(await self.phone.complete_invite(self.dialog))
        self._talking = asyncio.create_task(self._talk())
        return self

    async def __aexit__(self, failure: type[BaseException] | None = None, *_: object) -> None:
        if self._talking is not None:
            self._talking.cancel()
            with suppress(asyncio.CancelledError):
                await self._talking
        if failure is not None:  # so that the server's call does not last until its RTP timeout
            self._send_bye()

    def _send_bye(self) -> None:
        self.phone.send_in_dialog("BYE", self.dialog)

    async def hears(self, packets: int) -> Samples:
        """Wait for `packets` more packets; returns their audio. Raises `TimeoutError`."""
        start = len(self.packets)
        await self.has_heard(start + packets)
        return self.sound(start)

    async def has_heard(self, packets: int) -> None:
        """Wait until `packets` packets have been received since the beginning. Raises `TimeoutError`."""
        async with asyncio.timeout(packets * 0.02 + 10):
            while len(self.packets) < packets:
                self._came.clear()
                await self._came.wait()

    def sound(self, since: int = 0) -> Samples:
        """The received audio since that packet, int16 at 8 kHz."""
        audio = [DECODERS[packet.kind](packet.payload) for packet in self.packets[since:] if packet.kind in DECODERS]
        return np.concatenate([np.zeros(0, np.int16), *audio])

    def digits(self) -> str:
        """The received RFC 4733 digits."""
        begun = {packet.timestamp: packet.payload[0] for packet in self.packets if packet.kind == self.event_kind}
        return "".join("0123456789*#ABCD"[code] for code in begun.values())

    def say(self, samples: Samples) -> None:
        """Send audio at 8 kHz, from the next packet on."""
        coded = ENCODERS[self.codec](np.pad(samples, (0, -len(samples) % FRAME)))
        self._to_say.extend((self.codec, coded[at : at + FRAME]) for at in range(0, len(coded), FRAME))

    async def has_said(self) -> None:
        """Wait until all audio and digits have been sent."""
        while self._to_say:
            await self.hears(1)

    def press(self, digits: str) -> None:
        """Send digits as RFC 4733 events of 100 ms each, with three end packets per event."""
        for digit in digits:
            code = "0123456789*#ABCD".index(digit)
            lengths = [(160 * n, False) for n in range(1, 5)] + [(800, True)] * 3
            self._to_say.extend(
                (self.event_kind, bytes((code, 0x80 * end + 10)) + length.to_bytes(2, "big")) for length, end in lengths
            )
            self._to_say.append(self._silence())

    def be_quiet(self, packets: int) -> None:
        """Send comfort noise (RFC 3389) every 200 ms instead of audio, for the time of so many packets."""
        self._to_say.extend(None if at % 10 else (COMFORT_NOISE, b"\x46") for at in range(packets))

    def offer(self, codecs: str = "0 101", *attributes: str) -> str:
        """An SDP offer. `codecs`: payload types."""
        return self.phone.offer(codecs, *attributes)

    async def reinvite(self, sdp: str) -> Message:
        """Send a re-INVITE with this offer; returns its final response, acknowledged."""
        self.dialog.cseq += 1
        branch = self.phone.branch()
        self.phone.send(self.phone.request("INVITE", self.dialog, body=sdp, branch=branch))
        answer = await self.phone.final_response("INVITE")
        self.phone.acknowledge(self.dialog, answer, branch)
        self._take_answer(answer)
        return answer

    async def hang_up(self) -> None:
        """Send BYE, and wait for 200."""
        await self.phone.bye(self.dialog)

    async def hung_up(self, timeout_s: float = 20) -> None:
        """Wait for the peer's BYE, and respond with 200."""
        async with asyncio.timeout(timeout_s):
            while not (message := parse(await self.phone.sip.received.get())).first_line.startswith("BYE "):
                pass
        self.phone.send(answer_200(message))

    async def _talk(self) -> None:
        while True:
            self._receive(await self.phone.rtp.received.get())
            self._send_next()

    def _receive(self, data: bytes) -> None:
        self.packets.append(self._unpack(data))
        self._came.set()

    def _send_next(self) -> None:
        """Send the packet of the next 20 ms."""
        next_packet = self._to_say.popleft() if self._to_say else self._silence()
        self._timestamp += FRAME
        if next_packet is None:
            return
        kind, payload = next_packet
        if kind < FIRST_DYNAMIC or (payload[1] & 0x80 == 0 and payload[2:] == b"\0\xa0"):
            self._began = self._timestamp
        sent = self._over_the_line(payload) if kind in ENCODERS else payload
        self._sequence += 1
        self.phone.send_rtp_bytes(self._pack(Rtp(kind, self._sequence, self._began, sent)))

    def _silence(self) -> tuple[int, bytes]:
        return self.codec, SILENCE[self.codec]

    def _over_the_line(self, payload: bytes) -> bytes:
        """The payload that the phone sends for this payload of its caller."""
        return payload

    def _take_answer(self, answer: Message) -> None:
        """The answer to our offer."""

    def _unpack(self, data: bytes) -> Rtp:
        return Rtp.unpack(data)

    def _pack(self, packet: Rtp) -> bytes:
        return packet.pack()


def dialled(phone: RawPhone, number: str) -> Dialog:
    """A new dialog to this number."""
    dialog = phone.dialog()
    dialog.target = f"sip:{number}@127.0.0.1"
    dialog.to = f"<{dialog.target}>"
    return dialog


def answer_200(request: Message) -> bytes:
    """A 200 response to the peer's request."""
    copied = [line for name in ("Via", "From", "To", "Call-ID", "CSeq") for line in request.headers(name)]
    return ("\r\n".join(["SIP/2.0 200 OK", *copied, "Content-Length: 0"]) + "\r\n\r\n").encode()


@asynccontextmanager
async def calling(target: str, number: str = "100") -> AsyncIterator[PhoneCall]:
    """An answered call to a number."""
    async with RawPhone(target) as phone, PhoneCall(phone, number) as call:
        yield call


async def refusal(target: str, number: str, host: str = "127.0.0.1") -> Message:
    """Send an INVITE from this address that must be rejected; returns the final response."""
    async with RawPhone(target, host) as phone:
        dialog = dialled(phone, number)
        branch = phone.invite(dialog, phone.offer())
        answer = await phone.final_response("INVITE")
        dialog.to = answer.header("To")
        phone.send(phone.request("ACK", dialog, branch=branch))
        return answer


async def known(target: str, host: str = "127.0.0.1") -> None:
    """Wait until the server responds to OPTIONS from this address, because it reads a new trunk a moment after the API
    has stored it."""
    async with RawPhone(target, host) as phone, asyncio.timeout(10):
        while True:
            phone.send(phone.request("OPTIONS", phone.dialog()))
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await phone.final_response("OPTIONS")
                    return
