"""Phones that are registered at a PBX as its extensions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Message, RawPhone, parse
from tests.trunkline.callees import TargetCall
from tests.trunkline.sip_phone import PhoneCall, answer_200

PACKET_S = 0.02


class ExtensionPhone(RawPhone):
    """A phone at a loopback address of its own, by which the PBX identifies it. It accepts each re-INVITE, and sends
    its audio where that offers to receive it; and each UPDATE and NOTIFY."""

    def __init__(self, pbx: str, extension: str, host: str) -> None:
        """`pbx`: the SIP address of the PBX."""
        super().__init__(pbx, host)
        self.extension = extension
        self.reinvites: list[Message] = []
        self.notices: asyncio.Queue[Message] = asyncio.Queue()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._sorting = asyncio.create_task(self._sort())
        dialog = self.dialog()
        dialog.target, dialog.to = "sip:127.0.0.1", f"<sip:{self.extension}@127.0.0.1>"
        self.send(self.request("REGISTER", dialog))
        assert (await self.final_response("REGISTER")).status == 200
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sorting.cancel()
        with suppress(asyncio.CancelledError):
            await self._sorting
        await super().__aexit__()

    async def next_message(self, timeout_s: float = 10) -> Message:
        """The next message that the phone does not respond to by itself."""
        return await asyncio.wait_for(self._messages.get(), timeout_s)

    async def called(self) -> RawCallee:
        """Wait for a call; returns it unanswered, but ringing."""
        callee = await RawCallee.wait_for_invite(self)
        callee.ring()
        return callee

    async def transferred(self) -> None:
        """Wait until the NOTIFY of a REFER says that the target has answered."""
        async with asyncio.timeout(10):
            while not (await self.notices.get()).body.startswith("SIP/2.0 200 "):
                pass

    async def _sort(self) -> None:
        while True:
            message = parse(await self.sip.received.get())
            method = message.first_line.split()[0]
            if method == "INVITE" and "tag=" in message.header("To"):
                self.reinvites.append(message)
                if message.body:
                    RawCallee(self, message).learn_rtp_target()
                self.reply(message, "200 OK", body=self.offer())
            elif method in ("UPDATE", "NOTIFY"):
                if method == "NOTIFY":
                    self.notices.put_nowait(message)
                self.reply(message, "200 OK")
            else:
                self._messages.put_nowait(message)


class ExtensionCall(PhoneCall):
    """A call of such a phone, which sends a packet every 20 ms, whatever it receives."""

    phone: ExtensionPhone

    async def hung_up(self, timeout_s: float = 20) -> None:
        """Wait for the peer's BYE, and respond with 200."""
        async with asyncio.timeout(timeout_s):
            self.phone.send(answer_200(await self.phone.next_request("BYE")))

    async def _talk(self) -> None:
        receiving = asyncio.create_task(self._receive_all())
        try:
            await self._send_all()
        finally:
            receiving.cancel()

    async def _receive_all(self) -> None:
        while True:
            self._receive(await self.phone.rtp.received.get())

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        while True:
            self._send_next()
            next_at += PACKET_S
            await asyncio.sleep(next_at - loop.time())


class AnsweredCall(ExtensionCall, TargetCall):
    """A call that such a phone receives; entering it answers the call."""


@asynccontextmanager
async def dialling(phone: ExtensionPhone, number: str) -> AsyncIterator[ExtensionCall]:
    """An answered call of the phone to a number."""
    async with ExtensionCall(phone, number) as call:
        yield call
