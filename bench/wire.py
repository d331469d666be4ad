"""RTP as it was on the wire of the loopback interface: when each packet was sent, and its G.711 level."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.tap import RTP_AT, Tap

_HEADER: Final = RTP_AT + 12


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


class Wire(Tap):
    """Collects the RTP packets between `ports` while the block runs."""

    def __init__(self, ports: range) -> None:
        super().__init__(2048)
        self.packets: list[Packet] = []
        self._ports = ports

    def keep(self, frame: bytes, at_ns: int) -> None:
        """IPv4, UDP, RTP: nothing of ours has options or extensions."""
        if len(frame) <= _HEADER or frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_UDP:
            return
        source, target = struct.unpack_from("!HH", frame, 34)
        ours = source in self._ports or target in self._ports
        if ours and source % 2 == 0 and frame[RTP_AT] >> 6 == 2:
            self.packets.append(Packet(at_ns / 1e9, source, target, frame[_HEADER:]))

    def stream(self, source: int) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Times (s) and peaks of the packets that a port sent."""
        own = [packet for packet in self.packets if packet.source == source]
        times = np.array([packet.at_s for packet in own])
        return times, np.array([mulaw_peak(packet.payload) for packet in own], np.int32)
