"""A PBX in the network of the nodes: it calls through Kamailio and answers the nodes' calls, dozens at a time, and
notes what becomes of each. Its phones count the RTP that they receive."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import Any, Final, Self

from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Dialog, Message, RawPhone, Rtp, parse
from tests.trunkline.sip_phone import FRAME, PCMU, SILENCE, answer_200, dialled

FINAL_S: Final = 10.0
"""The longest time until a request has its final response."""
SENT_EVERY: Final = 10
"""The phone sends a packet for each so many that it receives: enough to be heard."""


class RtpCounter(asyncio.DatagramProtocol):
    """Counts the packets that arrive; sends silence now and then."""

    def __init__(self) -> None:
        self.count = 0
        self.last_s = 0.0
        """When the last one came, monotonic."""
        self.target: tuple[str, int] | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: object) -> None:
        if 192 <= data[1] <= 223:  # RTCP
            return
        self.count += 1
        self.last_s = time.monotonic()
        if self.count % SENT_EVERY == 1 and self.target is not None:
            self.send()

    def send(self) -> None:
        """Send a packet of silence."""
        number = self.count // SENT_EVERY
        self._transport.sendto(Rtp(PCMU, number, number * FRAME, SILENCE[PCMU]).pack(), self.target)

    @property
    def port(self) -> int:
        """Its port number."""
        return int(self._transport.get_extra_info("sockname")[1])

    def close(self) -> None:
        """Close the socket."""
        self._transport.close()


@dataclass(eq=False)
class PbxCall:
    """A call of the PBX, from its INVITE on. Times are of the monotonic clock, s."""

    dialog: Dialog
    rtp: RtpCounter
    callee: RawCallee | None = None
    """Of a received call."""
    status: int = 0
    """The final response to the INVITE; 0 without one."""
    node: str = ""
    """The address of the node that has the call."""
    answered_s: float | None = None
    ended_s: float | None = None
    answer: str = ""
    """The To header of the first 200."""
    given_up: bool = False
    """There was no final response in time."""
    ended_by: str = ""
    """`pbx`, `cluster`, or "" while the call goes on."""
    responses: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def sip_call_id(self) -> str:
        """The Call-ID."""
        return self.dialog.call_id

    @property
    def goes_on(self) -> bool:
        """True from the answer to the first BYE."""
        return self.answered_s is not None and self.ended_s is None

    def answered(self) -> None:
        """The dialog is confirmed."""
        self.answered_s = time.monotonic()
        host = re.search(r"\d+\.\d+\.\d+\.\d+", self.dialog.target)
        assert host is not None
        self.node = host[0]

    def end(self, by: str) -> None:
        """One side has sent BYE."""
        if self.ended_s is None:
            self.ended_s, self.ended_by = time.monotonic(), by
            self.rtp.close()
            self.over.set()

    async def final_response(self, method: str) -> Message:
        """The final response to a request. Raises `TimeoutError`."""
        async with asyncio.timeout(FINAL_S):
            while True:
                message = await self.responses.get()
                if message.status >= 200 and message.header("CSeq").endswith(method):
                    return message

    async def hears(self, packets: int) -> None:
        """Wait for that many more packets. Raises `TimeoutError`."""
        wanted = self.rtp.count + packets
        async with asyncio.timeout(packets * 0.02 + 5):
            while self.rtp.count < wanted:  # noqa: ASYNC110 - an event for each packet would cost more
                await asyncio.sleep(0.05)


class Pbx:
    """Use `async with`. `calls`: every call, by its Call-ID."""

    def __init__(self, target: str, host: str) -> None:
        self.host = host
        self.phone = RawPhone(target, host)
        self.calls: dict[str, PbxCall] = {}
        self.declines = 0
        """How many of the next calls of nodes are declined with 486."""
        self.repeated_invites = 0

    async def __aenter__(self) -> Self:
        await self.phone.__aenter__()
        self._serving = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._serving.cancel()
        for call in self.calls.values():
            call.rtp.close()
        await self.phone.__aexit__()

    @property
    def port(self) -> int:
        """Its SIP port."""
        return self.phone.sip.port

    @property
    def in_progress(self) -> list[PbxCall]:
        """The calls that are answered and have not ended."""
        return [each for each in self.calls.values() if each.goes_on]

    async def dial(self, number: str) -> PbxCall:
        """Call a number; returns the call once it is answered or rejected. Raises `TimeoutError`."""
        call = await self._new_call(dialled(self.phone, number))
        sdp = self._sdp(call)
        branch = self.phone.invite(call.dialog, sdp)
        try:
            answer = await call.final_response("INVITE")
        except TimeoutError:
            call.given_up = True
            call.rtp.close()
            raise
        call.status = answer.status
        self.phone.acknowledge(call.dialog, answer, branch)
        if answer.status == 200:
            call.dialog.update_target(answer)
            self.phone.send(self.phone.request("ACK", call.dialog))
            call.rtp.target = _media_address(answer.body)
            call.answered()
        else:
            call.rtp.close()
        return call

    async def hang_up(self, call: PbxCall) -> int:
        """Send BYE, unless the call has ended; returns the status of its response, 0 without a BYE."""
        if not call.goes_on:
            return 0
        if call.callee is None:
            self.phone.send_in_dialog("BYE", call.dialog)
        else:
            self.phone.send(call.callee.request("BYE"))
        call.end("pbx")
        return (await call.final_response("BYE")).status

    async def _serve(self) -> None:
        while True:
            message = parse(await self.phone.sip.received.get())
            call = self.calls.get(message.header("Call-ID"))
            if message.status and call is not None:
                self._take_response(message, call)
            elif not message.status:
                await self._take_request(message, call)

    def _take_response(self, response: Message, call: PbxCall) -> None:
        """Pass a response on. A second answer, by a node that hung when Kamailio went on to the next one, or one that
        comes too late, is acknowledged and ended (RFC 3261 13.2.2.4)."""
        is_answer = response.status == 200 and response.header("CSeq").endswith("INVITE")
        if is_answer and (call.given_up or (call.answer and response.header("To") != call.answer)):
            other = Dialog(call.dialog.call_id, call.dialog.tag, cseq=call.dialog.cseq)
            other.update_target(response)
            self.phone.send(self.phone.request("ACK", other))
            self.phone.send_in_dialog("BYE", other)
        elif is_answer and call.answer and call.answered_s is not None:
            self.phone.send(self.phone.request("ACK", call.dialog))  # it was sent again
        else:
            call.answer = response.header("To") if is_answer else call.answer
            call.responses.put_nowait(response)

    async def _take_request(self, request: Message, call: PbxCall | None) -> None:
        method = request.first_line.split()[0]
        if method == "INVITE":
            await self._take_invite(request, call)
        elif method == "ACK":
            if call is not None and call.callee is not None and call.status == 200 and call.answered_s is None:
                call.answered()
                call.rtp.send()
        else:
            self.phone.send(answer_200(request))
            if call is not None and method == "CANCEL" and call.callee is not None and not call.status:
                call.callee.reject("487 Request Terminated")
                call.status = 487
            if call is not None and method == "BYE":
                call.end("cluster")

    async def _take_invite(self, invite: Message, call: PbxCall | None) -> None:
        if call is not None:
            self.repeated_invites += 1
            return
        callee = RawCallee(self.phone, invite)
        call = await self._new_call(callee.dialog)
        call.callee = callee
        callee.ring()
        if self.declines:
            self.declines -= 1
            call.status = 486
            callee.reject("486 Busy Here")
            return
        call.status, call.rtp.target = 200, _media_address(invite.body)
        callee.answer(self._sdp(call))

    async def _new_call(self, dialog: Dialog) -> PbxCall:
        loop = asyncio.get_running_loop()
        _, rtp = await loop.create_datagram_endpoint(RtpCounter, local_addr=(self.host, 0))
        call = self.calls[dialog.call_id] = PbxCall(dialog, rtp)
        return call

    def _sdp(self, call: PbxCall) -> str:
        return self.phone.offer("0").replace(f"m=audio {self.phone.rtp.port} ", f"m=audio {call.rtp.port} ")


def _media_address(sdp: str) -> tuple[str, int]:
    port, host = re.search(r"m=audio (\d+)", sdp), re.search(r"c=IN IP4 (\S+)", sdp)
    assert port and host
    return host[1], int(port[1])
