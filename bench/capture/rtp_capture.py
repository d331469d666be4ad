"""RTP as it was on the wire of the loopback interface: when each packet was sent, and its G.711 level. The kernel picks
the packets of the calls that are watched, so that many others cost next to nothing."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.capture.packet_socket import PACKET_OUTGOING, RTP_AT, PacketCapture

_HEADER: Final = RTP_AT + 12
_PACKET_TYPE: Final = -0x1000 + 4
"""SKF_AD_OFF + SKF_AD_PKTTYPE."""


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


def _program(first: int, last: int, every: int) -> bytes:
    """Keep outgoing UDP from or to the ports `first`, `first + every`, ... up to `last`."""
    instructions = [
        (0x28, 0, 0, _PACKET_TYPE),
        (0x15, 0, 15, PACKET_OUTGOING),
        (0x30, 0, 0, 14 + 9),
        (0x15, 0, 13, socket.IPPROTO_UDP),
        (0x28, 0, 0, 14 + 20),
        (0x35, 0, 4, first),
        (0x25, 3, 0, last),
        (0x14, 0, 0, first),
        (0x94, 0, 0, every),
        (0x15, 6, 7, 0),
        (0x28, 0, 0, 14 + 22),
        (0x35, 0, 5, first),
        (0x25, 4, 0, last),
        (0x14, 0, 0, first),
        (0x94, 0, 0, every),
        (0x15, 0, 1, 0),
        (0x06, 0, 0, 2048),
        (0x06, 0, 0, 0),
    ]  # ldh, jeq, ldb, jeq, ldh, jge, jgt, sub, mod, jeq, ldh, jge, jgt, sub, mod, jeq, ret, ret
    return b"".join(struct.pack("HBBI", code, yes, no, k & 0xFFFFFFFF) for code, yes, no, k in instructions)


class RtpCapture(PacketCapture):
    """Collects the RTP packets from and to every `every`-th of the server's `ports` while the block runs."""

    def __init__(self, ports: range, every: int = 2) -> None:
        super().__init__(2048, _program(ports[0], ports[-1], every))
        self._ports = ports
        self.packets: list[Packet] = []

    def keep(self, frame: bytes, at_ns: int) -> None:
        """IPv4, UDP, RTP: nothing of ours has options or extensions."""
        if len(frame) <= _HEADER or frame[RTP_AT] >> 6 != 2:
            return
        source, target = struct.unpack_from("!HH", frame, 34)
        self.packets.append(Packet(at_ns / 1e9, source, target, frame[_HEADER:]))

    def calls(self) -> list[tuple[list[Packet], list[Packet]]]:
        """The packets of each call: the caller's, and the server's."""
        found: dict[int, tuple[list[Packet], list[Packet]]] = {}
        for packet in self.packets:
            ours = packet.source in self._ports
            port = packet.source if ours else packet.target
            found.setdefault(port, ([], []))[ours].append(packet)
        return list(found.values())


def levels(packets: list[Packet]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Times (s) and peaks of packets."""
    times = np.array([packet.at_s for packet in packets])
    return times, np.array([mulaw_peak(packet.payload) for packet in packets], np.int32)
