"""RTP capture on the loopback interface: send time, ports and G.711 payload of each packet. The kernel filters the
packets of the captured calls (BPF), so that the other calls cost next to nothing."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.capture.packet_socket import PACKET_OUTGOING, RTP_OFFSET, PacketCapture

_PAYLOAD_OFFSET: Final = RTP_OFFSET + 12
_PACKET_TYPE: Final = -0x1000 + 4
"""SKF_AD_OFF + SKF_AD_PKTTYPE."""


@dataclass(frozen=True)
class Packet:
    """One RTP packet: its send time, its UDP ports, and its payload (G.711 mu-law)."""

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
    """A BPF program that accepts outgoing UDP from or to the ports `first`, `first + every`, ... up to `last`."""
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
    """Collects the RTP packets from and to every `every`-th of the server's `ports` while its `with` block runs."""

    def __init__(self, ports: range, every: int = 2) -> None:
        super().__init__(2048, _program(ports[0], ports[-1], every))
        self._ports = ports
        self.packets: list[Packet] = []

    def on_packet(self, frame: bytes, at_ns: int) -> None:
        """Records an RTP packet; assumes IPv4 without options and RTP without extensions, as all processes here
        send."""
        if len(frame) <= _PAYLOAD_OFFSET or frame[RTP_OFFSET] >> 6 != 2:
            return
        source, target = struct.unpack_from("!HH", frame, 34)
        self.packets.append(Packet(at_ns / 1e9, source, target, frame[_PAYLOAD_OFFSET:]))

    def calls(self) -> list[tuple[list[Packet], list[Packet]]]:
        """The packets of each call: those of the caller, and those of the server."""
        streams: dict[int, tuple[list[Packet], list[Packet]]] = {}
        for packet in self.packets:
            from_server = packet.source in self._ports
            port = packet.source if from_server else packet.target
            streams.setdefault(port, ([], []))[from_server].append(packet)
        return list(streams.values())


def levels(packets: list[Packet]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Send times (s) and peak levels (16-bit PCM) of the packets."""
    times = np.array([packet.at_s for packet in packets])
    return times, np.array([mulaw_peak(packet.payload) for packet in packets], np.int32)
