"""The SIP of the benchmark's phones, over UDP on 127.0.0.1: callers, and called phones that answer at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

EVENT: Final = 101
"""Payload type of telephone-event in the offers of callers."""
Address = tuple[str, int]


@dataclass(frozen=True)
class Negotiated:
    """The RTP address of the other side, and the payload type of its telephone-event."""

    address: Address
    event: int


def sdp(port: int, event: int = EVENT) -> str:
    """An offer or answer: PCMU and telephone-event."""
    lines = (
        "v=0", "o=bench 1 1 IN IP4 127.0.0.1", "s=-", "c=IN IP4 127.0.0.1", "t=0 0",
        f"m=audio {port} RTP/AVP 0 {event}", "a=rtpmap:0 PCMU/8000", f"a=rtpmap:{event} telephone-event/8000",
        f"a=fmtp:{event} 0-15", "a=ptime:20",
    )  # fmt: skip
    return "\r\n".join(lines) + "\r\n"


def negotiated(message: str) -> Negotiated:
    """Reads the SDP of a message."""
    event = re.search(r"a=rtpmap:(\d+) telephone-event/8000", message)
    return Negotiated(
        (_found(r"c=IN IP4 (\S+)", message), int(_found(r"m=audio (\d+)", message))), int(event[1]) if event else EVENT
    )


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f"no {pattern} in {text}")
    return match[1]


def _header(message: str, name: str) -> str:
    return _found(rf"(?im)^{name}: *(.*?)\r?$", message)


class SipSocket(asyncio.DatagramProtocol):
    """A bound UDP socket for SIP."""

    transport: asyncio.DatagramTransport

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.transport.get_extra_info("sockname")[1])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """Reads a message."""
        self.on_message(data.decode(errors="replace"), addr)

    def on_message(self, message: str, source: Address) -> None:
        """Called for each message."""
        raise NotImplementedError

    def reply(self, request: str, source: Address, body: str = "") -> None:
        """Responds to a request with 200."""
        vias = [f"Via: {each.strip()}" for each in re.findall(r"(?im)^Via: *(.*?)\r?$", request)]
        to = _header(request, "To")
        lines = [
            "SIP/2.0 200 OK",
            *vias,
            f"From: {_header(request, 'From')}",
            f"To: {to if ';tag=' in to else f'{to};tag=phone'}",
            f"Call-ID: {_header(request, 'Call-ID')}",
            f"CSeq: {_header(request, 'CSeq')}",
            f"Contact: <sip:bench@127.0.0.1:{self.port}>",
            *(["Content-Type: application/sdp"] if body else []),
            f"Content-Length: {len(body)}",
        ]
        self.transport.sendto(("\r\n".join(lines) + "\r\n\r\n" + body).encode(), source)


class CalledPhones(SipSocket):
    """Answers each INVITE at once. The last two digits of the called number are those of the phone."""

    def __init__(self, rtp_port: Callable[[int], int], on_answered: Callable[[int, Negotiated], None]) -> None:
        """`rtp_port(phone)` is the port of its audio."""
        self._rtp_port = rtp_port
        self._on_answered = on_answered

    def on_message(self, message: str, source: Address) -> None:
        """Answers requests."""
        method = message.split(" ", 1)[0]
        if method == "INVITE":
            phone, offered = int(_found(r"INVITE sip:\d*?(\d\d)@", message)), negotiated(message)
            self.reply(message, source, sdp(self._rtp_port(phone), offered.event))
            self._on_answered(phone, offered)
        elif method in ("BYE", "OPTIONS", "CANCEL", "INFO"):
            self.reply(message, source)


class CallingPhones(SipSocket):
    """Places calls, whose Call-ID begins with the number of the phone."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._cseq = 1
        self._answers: dict[str, asyncio.Future[str]] = {}
        self._dialogs: dict[int, str] = {}
        """The answer of each phone's call."""

    async def call(self, phone: int, number: str, rtp_port: int) -> Negotiated:
        """Calls a number. Raises `ConnectionError` if it is not answered with 200, and `TimeoutError`."""
        call_id = f"{phone}-bench@127.0.0.1"
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[call_id] = answered
        uri = f"sip:{number}@127.0.0.1"
        self._send("INVITE", uri, f"<{uri}>", call_id, 1, sdp(rtp_port))
        answer = await asyncio.wait_for(answered, 10)
        self._acknowledge(answer)
        if not answer.startswith("SIP/2.0 200 "):
            raise ConnectionError(answer.partition("\r\n")[0])
        self._dialogs[phone] = answer
        return negotiated(answer)

    def hang_up(self) -> None:
        """Sends BYE in all calls."""
        for answer in self._dialogs.values():
            self._send("BYE", _contact(answer), _header(answer, "To"), _header(answer, "Call-ID"), 2)

    def on_message(self, message: str, source: Address) -> None:
        """Takes the final responses of INVITEs, and answers requests."""
        if not message.startswith("SIP/2.0 "):
            if not message.startswith("ACK "):
                self.reply(message, source)
            return
        if message[8] == "1" or not _header(message, "CSeq").endswith("INVITE"):
            return
        answered = self._answers[_header(message, "Call-ID")]
        if answered.done():
            self._acknowledge(message)
        else:
            answered.set_result(message)

    def _acknowledge(self, answer: str) -> None:
        target = _contact(answer) if answer.startswith("SIP/2.0 2") else "sip:bench@127.0.0.1"
        self._send("ACK", target, _header(answer, "To"), _header(answer, "Call-ID"), 1)

    def _send(self, method: str, uri: str, to: str, call_id: str, cseq: int, body: str = "") -> None:
        branch = f"z9hG4bK-{call_id.partition('@')[0]}-{method}"
        lines = [
            f"{method} {uri} SIP/2.0",
            f"Via: SIP/2.0/UDP 127.0.0.1:{self.port};branch={branch};rport",
            f"From: <sip:bench@127.0.0.1>;tag={call_id.partition('@')[0]}",
            f"To: {to}",
            f"Call-ID: {call_id}",
            f"CSeq: {cseq} {method}",
            f"Contact: <sip:bench@127.0.0.1:{self.port}>",
            "Max-Forwards: 70",
            *(["Content-Type: application/sdp"] if body else []),
            f"Content-Length: {len(body)}",
        ]
        self.transport.sendto(("\r\n".join(lines) + "\r\n\r\n" + body).encode(), self._server)


def _contact(answer: str) -> str:
    return _found(r"(?im)^Contact: *<([^>]+)>", answer)
