"""RTP as it was on the wire of the loopback interface: a packet socket, the kernel's time stamps, G.711 levels.

Needs CAP_NET_RAW. Times are seconds of CLOCK_REALTIME, taken by the kernel when the packet was sent.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

import numpy as np
from numpy.typing import NDArray

ETH_P_ALL: Final = 3
SO_TIMESTAMPNS: Final = 35
PACKET_OUTGOING: Final = 4
_SNAP: Final = 2048


@dataclass(frozen=True)
class Packet:
    """One RTP packet: when it was sent, its UDP ports, and its payload (G.711 mu-law)."""

    at_s: float
    source: int
    target: int
    payload: bytes


def mulaw_peak(payload: bytes) -> int:
    """The largest magnitude of mu-law samples, as 16-bit PCM (ITU-T G.711)."""
    code = ~np.frombuffer(payload, np.uint8) & 0x7F
    exponent, mantissa = code >> 4, code & 0x0F
    magnitude = (((mantissa.astype(np.int32) << 3) + 0x84) << exponent.astype(np.int32)) - 0x84
    return int(magnitude.max(initial=0))


class Wire:
    """Collects the RTP packets between `ports` while the block runs."""

    def __init__(self, ports: range) -> None:
        self.packets: list[Packet] = []
        self._ports = ports
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 25)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.bind(("lo", ETH_P_ALL))
        self._socket.settimeout(0.2)
        self._stop = Event()
        self._thread = Thread(target=self._collect, daemon=True)

    def __enter__(self) -> Wire:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def _collect(self) -> None:
        while not self._stop.is_set():
            try:
                frame, extra, _, address = self._socket.recvmsg(_SNAP, 256)
            except TimeoutError:
                continue
            if address[2] == PACKET_OUTGOING:
                self._keep(frame, extra)

    def _keep(self, frame: bytes, extra: list[tuple[int, int, bytes]]) -> None:
        """Ethernet 14, IPv4, UDP 8, RTP 12: nothing of ours has options or extensions."""
        if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_UDP:
            return
        at = 14 + (frame[14] & 0x0F) * 4
        source, target = struct.unpack_from("!HH", frame, at)
        if source not in self._ports and target not in self._ports:
            return
        rtp = frame[at + 8 :]
        if len(rtp) > 12 and rtp[0] >> 6 == 2 and source % 2 == 0:
            seconds, nanoseconds = struct.unpack("qq", extra[0][2][:16])
            self.packets.append(Packet(seconds + nanoseconds / 1e9, source, target, bytes(rtp[12:])))

    def stream(self, source: int) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Times (s) and peaks of the packets that a port sent."""
        own = [packet for packet in self.packets if packet.source == source]
        times = np.array([packet.at_s for packet in own])
        return times, np.array([mulaw_peak(packet.payload) for packet in own], np.int32)
