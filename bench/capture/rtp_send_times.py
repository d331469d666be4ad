"""Send times of RTP packets, captured from a sample of the calls. The kernel filters the packets (BPF), so that
capturing among hundreds of calls costs next to nothing."""

from __future__ import annotations

import socket
import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.capture.packet_socket import PACKET_OUTGOING, RTP_OFFSET, PacketCapture

_PACKET_TYPE: Final = -0x1000 + 4
"""SKF_AD_OFF + SKF_AD_PKTTYPE."""
TICK_MS: Final = 20.0


def _program(first: int, last: int, every: int) -> bytes:
    """A BPF program that accepts outgoing UDP from the ports `first`, `first + every`, ... up to `last`."""
    instructions = [
        (0x28, 0, 0, _PACKET_TYPE),
        (0x15, 0, 9, PACKET_OUTGOING),
        (0x30, 0, 0, 14 + 9),
        (0x15, 0, 7, socket.IPPROTO_UDP),
        (0x28, 0, 0, 14 + 20),
        (0x35, 0, 5, first),
        (0x25, 4, 0, last),
        (0x14, 0, 0, first),
        (0x94, 0, 0, every),
        (0x15, 0, 1, 0),
        (0x06, 0, 0, 64),
        (0x06, 0, 0, 0),
    ]  # ldh, jeq, ldb, jeq, ldh, jge, jgt, sub, mod, jeq, ret, ret
    return b"".join(struct.pack("HBBI", code, yes, no, k & 0xFFFFFFFF) for code, yes, no, k in instructions)


class RtpSendTimes(PacketCapture):
    """Collects the send times of RTP packets while its `with` block runs."""

    def __init__(self, first_port: int, last_port: int, every: int) -> None:
        """`every`: the step between the captured source ports."""
        super().__init__(64, _program(first_port, last_port, every))
        self._times: dict[int, list[int]] = {}

    def on_packet(self, frame: bytes, at_ns: int) -> None:
        """Records the send time of an RTP packet; ignores other packets."""
        if len(frame) > RTP_OFFSET and frame[RTP_OFFSET] >> 6 == 2:
            self._times.setdefault(struct.unpack_from("!H", frame, 34)[0], []).append(at_ns)

    @property
    def streams(self) -> int:
        """Number of RTP streams captured, one for each call."""
        return len(self._times)

    def deviations_ms(self) -> NDArray[np.float64]:
        """Absolute deviations of the inter-packet gaps of each stream from 20 ms, ms."""
        return np.abs(self.gaps_ms() - TICK_MS)

    def gaps_ms(self) -> NDArray[np.float64]:
        """Gaps between successive packets of each stream, ms."""
        return np.concatenate([np.zeros(0), *(np.diff(times) / 1e6 for times in self._times.values())])
