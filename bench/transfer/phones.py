"""The phones of the transfer benchmark (a worker process): as many callers as called ones, each caller connected with
the called phone of its number."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, Final, TypeVar

import numpy as np

from bench.transfer.markers import find_markers
from bench.transfer.rtp_phones import Packet, RtpPhone, RtpThread
from bench.transfer.sip_dialogs import CalledPhones, CallingPhones, Negotiated, SipSocket
from bench.worker_process import serve_commands
from config import logging as logs

RTP_HEADER: Final = 12
CALL_INTERVAL_S: Final = 0.05
HEARING_S: Final = 1.0
"""Wait, after a key, for both to hear each other."""
LONGEST_DELAY_NS: Final = 1_000_000_000
Socket = TypeVar("Socket", bound=SipSocket)
Found = list[tuple[int, int]]
"""Time (CLOCK_REALTIME, ns) and number of each received marker."""


class Phones:
    """Callers and called phones."""

    def __init__(self, pairs: int) -> None:
        self.callers = [RtpPhone() for _ in range(pairs)]
        self.called = [RtpPhone() for _ in range(pairs)]
        self._calling: CallingPhones
        self._answering: CalledPhones
        self._answered = 0
        self._thread = RtpThread(self.callers + self.called)

    async def listen(self) -> dict[str, Any]:
        """Waits for calls. Returns the SIP port of the called phones."""
        self._answering = await _bound(CalledPhones(lambda phone: self.called[phone].port, self._on_answered))
        return {"port": self._answering.port}

    def _on_answered(self, phone: int, peer: Negotiated) -> None:
        self._answered += 1
        self.called[phone].connect(peer)

    async def call(self, port: int, number: str, count_up: bool) -> dict[str, Any]:
        """All callers call a number, or with `count_up` that number and those after it."""
        self._calling = await _bound(CallingPhones(("127.0.0.1", port)))
        for at, phone in enumerate(self.callers):
            dialled = str(int(number) + at) if count_up else number
            phone.connect(await self._calling.call(at, dialled, phone.port))
            await asyncio.sleep(CALL_INTERVAL_S)
        return {}

    async def answered(self) -> dict[str, Any]:
        """The number of INVITEs that were answered."""
        return {"answered": self._answered}

    async def accept(self, interval_s: float) -> dict[str, Any]:
        """The called phones press key 1, one after the other; each pair sends markers from then on, the called phone
        after the key. Returns the times from the first packet of the key until both have received a marker, ms; None
        where they have not."""
        self._thread.keeping = True
        for caller, called in zip(self.callers, self.called, strict=True):
            caller.marking = True
            called.press_key()
            await asyncio.sleep(interval_s)
        await asyncio.sleep(HEARING_S)
        self._set_marking(False)
        self._thread.keeping = False
        times = [_hearing_ms(pair) for pair in zip(self.callers, self.called, strict=True)]
        self._forget()
        return {"hearing_ms": times}

    async def measure(self, seconds: float) -> dict[str, Any]:
        """All phones send markers for `seconds`. Returns how many, how many were not received, and the percentiles
        50, 99 and 100 of their delay, ms."""
        gc.disable()
        self._forget()
        self._thread.keeping = True
        self._set_marking(True)
        await asyncio.sleep(seconds)
        self._set_marking(False)
        await asyncio.sleep(LONGEST_DELAY_NS / 1e9)
        self._thread.keeping = False
        gc.enable()
        return self._report()

    def _report(self) -> dict[str, Any]:
        delays: list[float] = []
        sent = received = 0
        for caller, called in zip(self.callers, self.called, strict=True):
            for one, other in ((caller, called), (called, caller)):
                found = received_markers(other.received)
                delays += delays_ms(one.sent, found)
                sent += len(one.sent)
                received += len(found)
        percentiles = np.percentile(delays, [50, 99, 100]) if delays else [float("nan")] * 3
        return {
            "sent": sent,
            "lost": sent - len(delays),
            "spurious": received - len(delays),
            "delay_ms": [round(float(each), 1) for each in percentiles],
        }

    def _set_marking(self, on: bool) -> None:
        for phone in self.callers + self.called:
            phone.marking = on

    def _forget(self) -> None:
        for phone in self.callers + self.called:
            phone.sent.clear()
            phone.received.clear()

    async def hang_up(self) -> dict[str, Any]:
        """The callers hang up."""
        self._calling.hang_up()
        return {}

    def close(self) -> None:
        """Ends the audio."""
        self._thread.close()


async def _bound(protocol: Socket) -> Socket:
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: protocol, local_addr=("127.0.0.1", 0))
    return protocol


def received_markers(packets: list[Packet]) -> Found:
    """The markers in received packets. A marker's time is that at which its packet came, and its position in the packet
    more: the time at which a phone without a jitter buffer would play it."""
    if not packets:
        return []
    in_order = sorted(packets, key=lambda packet: (int.from_bytes(packet[1][4:8]), packet[0]))
    payloads = [packet[RTP_HEADER:] for _, packet in in_order]
    begins = np.cumsum([0, *map(len, payloads)])
    at, numbers = find_markers(b"".join(payloads))
    carriers = np.searchsorted(begins, at, side="right") - 1
    times = np.array([at_ns for at_ns, _ in in_order], np.int64)[carriers] + (at - begins[carriers]) * 125_000
    return list(zip(times.tolist(), numbers.tolist(), strict=True))


def delays_ms(sent: list[tuple[int, int]], found: Found) -> list[float]:
    """The delays of the markers that were received: each sent one is matched with the next received one of its
    number."""
    waiting: dict[int, list[int]] = {}
    for at_ns, number in reversed(sent):
        waiting.setdefault(number, []).append(at_ns)
    delays = []
    for at_ns, number in found:
        of_number = waiting.get(number, [])
        while of_number and at_ns - of_number[-1] > LONGEST_DELAY_NS:
            of_number.pop()  # lost
        if of_number and of_number[-1] <= at_ns:
            delays.append((at_ns - of_number.pop()) / 1e6)
    return delays


def _hearing_ms(pair: tuple[RtpPhone, RtpPhone]) -> float | None:
    found = [received_markers(phone.received) for phone in pair]
    if not all(found):
        return None
    return round((max(markers[0][0] for markers in found) - pair[1].key_at_ns) / 1e6, 1)


async def main() -> None:
    """Serves commands from stdin."""
    logs.configure("error", "console")
    opened: list[Phones] = []

    async def listen(pairs: int) -> dict[str, Any]:
        opened.append(Phones(pairs))
        return await opened[0].listen()

    async def call(port: int, number: str, count_up: bool = False) -> dict[str, Any]:
        return await opened[0].call(port, number, count_up)

    async def answered() -> dict[str, Any]:
        return await opened[0].answered()

    async def accept(interval_s: float) -> dict[str, Any]:
        return await opened[0].accept(interval_s)

    async def measure(seconds: float) -> dict[str, Any]:
        return await opened[0].measure(seconds)

    async def hang_up() -> dict[str, Any]:
        return await opened[0].hang_up()

    await serve_commands(
        {
            "listen": listen,
            "call": call,
            "answered": answered,
            "accept": accept,
            "measure": measure,
            "hang_up": hang_up,
        }
    )
    for phones in opened:
        phones.close()


if __name__ == "__main__":
    asyncio.run(main())
