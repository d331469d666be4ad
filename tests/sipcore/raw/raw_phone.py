"""A SIP phone of bytes and sockets, for tests that send and check messages byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import struct
from dataclasses import dataclass, field
from secrets import token_hex
from typing import cast

_TAGS = itertools.count(1)


class Datagrams(asyncio.DatagramProtocol):
    """A bound UDP socket with a queue of received packets."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self.transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.received.put_nowait(data)

    @property
    def port(self) -> int:
        """Its port number."""
        return int(self.transport.get_extra_info("sockname")[1])


class RtpDatagrams(Datagrams):
    """The same for RTP alone. RTCP (RFC 5761, 4) that is received here is another phone's, at the port before this
    one."""

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not 192 <= data[1] <= 223:
            super().datagram_received(data, addr)


@dataclass(frozen=True)
class Message:
    """A parsed SIP message."""

    first_line: str
    text: str
    body: str

    @property
    def status(self) -> int:
        """The status of a response, 0 for a request."""
        return int(self.first_line.split()[1]) if self.first_line.startswith("SIP/2.0 ") else 0

    def header(self, name: str) -> str:
        """The first header of that name; "" without one."""
        match = re.search(rf"^{name}: *(.*)$", self.text, re.MULTILINE | re.IGNORECASE)
        return match[1].strip() if match else ""

    @property
    def routes(self) -> list[str]:
        """The values of Record-Route, one for each line, in order."""
        return [line.partition(":")[2].strip() for line in self.headers("Record-Route")]

    def headers(self, name: str) -> list[str]:
        """All lines of a header, unchanged."""
        return [m.strip() for m in re.findall(rf"^{name}:.*$", self.text, re.MULTILINE | re.IGNORECASE)]


def parse(data: bytes) -> Message:
    """Read a message."""
    head, _, body = data.decode(errors="replace").partition("\r\n\r\n")
    return Message(head.split("\r\n", 1)[0], head.replace("\r\n", "\n"), body)


@dataclass
class Rtp:
    """An RTP packet."""

    kind: int
    sequence: int
    timestamp: int
    payload: bytes
    marker: bool = False
    ssrc: int = 0x5150

    def pack(self) -> bytes:
        """RFC 3550 5.1."""
        second = self.kind | (0x80 if self.marker else 0)
        return (
            struct.pack(">BBHII", 0x80, second, self.sequence & 0xFFFF, self.timestamp & 0xFFFFFFFF, self.ssrc)
            + self.payload
        )

    @classmethod
    def unpack(cls, data: bytes) -> Rtp:
        """Without extensions and contributing sources."""
        _, second, sequence, timestamp, ssrc = struct.unpack(">BBHII", data[:12])
        return cls(second & 0x7F, sequence, timestamp, data[12:], bool(second & 0x80), ssrc)


@dataclass
class Dialog:
    """The state of a dialog: Call-ID, tags, CSeq and target."""

    call_id: str
    tag: str
    to: str = ""
    target: str = ""
    cseq: int = 1
    routes: list[str] = field(default_factory=list)

    def update_target(self, answer: Message) -> None:
        """Send later requests to the Contact of this response, by its Record-Route (RFC 3261 12.1.2)."""
        self.routes = answer.routes[::-1] or self.routes
        self.to, self.target = answer.header("To"), answer.header("Contact").split("<")[1].split(">")[0]


class RawPhone:
    """Speaks SIP over UDP and RTP from an address on this machine; `async with RawPhone("127.0.0.1:5070")`."""

    via = "UDP"
    """The transport in its Via headers."""

    def __init__(self, target: str, host: str = "127.0.0.1") -> None:
        server, _, port = target.rpartition(":")
        self._target_host = server
        self._server = (server.strip("[]"), int(port))
        self.host = host
        self.named, self._family = (f"[{host}]", "IP6") if ":" in host else (host, "IP4")
        self._branches = itertools.count(1)
        self._name = token_hex(6)  # a port may be that of another phone, a moment ago: its transactions live on

    async def __aenter__(self) -> RawPhone:
        loop = asyncio.get_running_loop()
        _, self.sip = await loop.create_datagram_endpoint(Datagrams, local_addr=(self.host, 0))
        _, self.rtp = await loop.create_datagram_endpoint(RtpDatagrams, local_addr=(self.host, 0))
        self._rtp_target: tuple[str, int] | None = None
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sip.transport.close()
        self.rtp.transport.close()

    # ---- SIP ----

    @property
    def contact(self) -> str:
        """Where it takes requests."""
        return f"<sip:raw@{self.named}:{self.sip.port}>"

    def dialog(self) -> Dialog:
        """A new dialog, with a new Call-ID and tag."""
        number = next(_TAGS)
        return Dialog(f"raw-{self._name}-{number}@{self.host}", f"t{number}", target=f"sip:100@{self._target_host}")

    def request(
        self,
        method: str,
        dialog: Dialog,
        *,
        body: str = "",
        headers: tuple[str, ...] = (),
        branch: str = "",
        via: str = "",
    ) -> bytes:
        """A request. The CSeq is the dialog's; CANCEL and the ACK of a refusal need their INVITE's `branch`. `via`: the
        transport of its Via, if it is not the phone's."""
        to = dialog.to or f"<sip:100@{self._target_host}>"
        lines = [
            f"{method} {dialog.target} SIP/2.0",
            f"Via: SIP/2.0/{via or self.via} {self.named}:{self.sip.port};branch={branch or self.branch()};rport",
            f'From: "Raw \\"phone\\"" <sip:raw@{self.named}>;tag={dialog.tag}',
            f"To: {to}",
            f"Call-ID: {dialog.call_id}",
            f"CSeq: {dialog.cseq} {method}",
            f"Contact: {self.contact}",
            "Max-Forwards: 70",
            *(f"Route: {route}" for route in dialog.routes),
            *headers,
            *(["Content-Type: application/sdp"] if body else []),
            f"Content-Length: {len(body.encode())}",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()

    def branch(self) -> str:
        """A new branch parameter (RFC 3261 8.1.1.7)."""
        return f"z9hG4bK-{self._name}-{next(self._branches)}"

    def send(self, data: bytes) -> None:
        """To the server's SIP port."""
        self.sip.transport.sendto(data, self._server)

    async def next_message(self, timeout_s: float = 5) -> Message:
        """The next message."""
        return parse(await asyncio.wait_for(self.sip.received.get(), timeout_s))

    async def final_response(self, method: str = "", timeout_s: float = 5) -> Message:
        """The next final response (to `method`, if given); other messages, at most `timeout_s` apart, are skipped."""
        while True:
            message = await self.next_message(timeout_s)
            if message.status >= 200 and message.header("CSeq").endswith(method):
                return message

    async def options(self) -> Message:
        """Send OPTIONS and wait for its response: all messages sent before have been processed then."""
        dialog = self.dialog()
        self.send(self.request("OPTIONS", dialog))
        while (answer := await self.final_response("OPTIONS")).header("Call-ID") != dialog.call_id:
            pass
        return answer

    async def wait_processed(self) -> None:
        """As `options`, repeated when so many messages were sent that it may be lost."""
        for _ in range(5):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    assert (await self.options()).status == 200
                    return
        raise AssertionError("OPTIONS is not answered")

    def offer(self, codecs: str = "0 101", *attributes: str) -> str:
        """An SDP offer. `codecs`: payload types; telephone-event is 101."""
        here = f"IN {self._family} {self.host}"
        lines = [
            "v=0", f"o=raw 1 {next(_TAGS)} {here}", "s=-", f"c={here}", "t=0 0",
            f"m=audio {self.rtp.port} RTP/AVP {codecs}", "a=rtpmap:0 PCMU/8000", "a=rtpmap:101 telephone-event/8000",
            "a=fmtp:101 0-15", *(f"a={attribute}" for attribute in attributes),
        ]  # fmt: skip
        return "\r\n".join(lines) + "\r\n"

    def invite(self, dialog: Dialog, sdp: str, headers: tuple[str, ...] = ()) -> str:
        """Send INVITE; returns its branch."""
        branch = self.branch()
        self.send(self.request("INVITE", dialog, body=sdp, branch=branch, headers=headers))
        return branch

    async def complete_invite(self, dialog: Dialog) -> Message:
        """Wait for the 200 of an INVITE, send ACK, and store the target of our RTP."""
        answer = await self.final_response("INVITE")
        assert answer.status == 200, answer.text
        dialog.update_target(answer)
        self.send(self.request("ACK", dialog))
        self.aim_rtp(answer)
        return answer

    def aim_rtp(self, answer: Message) -> None:
        """Store the target of our RTP."""
        port = re.search(r"m=audio (\d+)", answer.body)
        host = re.search(r"c=IN IP[46] (\S+)", answer.body)
        assert port and host
        self._rtp_target = (host[1], int(port[1]))

    def acknowledge(self, dialog: Dialog, answer: Message, branch: str = "") -> None:
        """Send the ACK of a final response; that of a refusal has the INVITE's `branch` (RFC 3261 17.1.1.3)."""
        refused = Dialog(dialog.call_id, dialog.tag, answer.header("To"), dialog.target, dialog.cseq, dialog.routes)
        self.send(self.request("ACK", refused, branch=branch if answer.status >= 300 else ""))

    def reply(self, request: Message, status: str, *headers: str, body: str = "") -> None:
        """Respond to a request within a call."""
        lines = [
            f"SIP/2.0 {status}",
            *(line for name in ("Via", "From", "To", "Call-ID", "CSeq") for line in request.headers(name)),
            f"Contact: {self.contact}",
            *headers,
            *(["Content-Type: application/sdp"] if body else []),
            f"Content-Length: {len(body.encode())}",
        ]
        self.send(("\r\n".join(lines) + "\r\n\r\n" + body).encode())

    async def next_request(self, method: str) -> Message:
        """The next request with this method; others are skipped."""
        while not (message := await self.next_message()).first_line.startswith(f"{method} "):
            pass
        return message

    def send_in_dialog(self, method: str, dialog: Dialog, **more: str) -> None:
        """Send the next request of a call."""
        dialog.cseq += 1
        headers = tuple(f"{name.replace('_', '-')}: {value}" for name, value in more.items())
        self.send(self.request(method, dialog, headers=headers))

    async def bye(self, dialog: Dialog) -> None:
        """End the call."""
        self.send_in_dialog("BYE", dialog)
        assert (await self.final_response("BYE")).status == 200

    async def info(self, dialog: Dialog, kind: str, body: bytes) -> int:
        """Send SIP INFO with a body of `application/<kind>`; returns the status of its response."""
        dialog.cseq += 1
        head = self.request("INFO", dialog, headers=(f"Content-Type: application/{kind}",))
        self.send(head.replace(b"Content-Length: 0", b"Content-Length: %d" % len(body)) + body)
        return (await self.final_response("INFO")).status

    # ---- RTP ----

    def send_rtp(self, packet: Rtp) -> None:
        """Send an RTP packet to the port of the server's answer."""
        self.send_rtp_bytes(packet.pack())

    def send_rtp_bytes(self, packet: bytes) -> None:
        """Send any bytes to the port of the server's answer."""
        assert self._rtp_target is not None
        self.rtp.transport.sendto(packet, self._rtp_target)

    async def next_rtp(self) -> Rtp:
        """The next RTP packet (RTCP has another port)."""
        return Rtp.unpack(await self.next_rtp_bytes())

    async def next_rtp_bytes(self) -> bytes:
        """The next RTP packet, undecoded."""
        return await asyncio.wait_for(self.rtp.received.get(), 5)

    async def echo(self) -> None:
        """Send every packet back, until cancelled."""
        while True:
            packet = await self.rtp.received.get()
            assert self._rtp_target is not None
            self.rtp.transport.sendto(packet, self._rtp_target)
