"""When packets of some calls left, by the kernel's time stamps on the loopback interface.

The kernel picks the packets (a classic BPF program on a packet socket), so that watching hundreds of calls costs next
to nothing. Needs CAP_NET_RAW.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from threading import Event, Thread
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.wire import ETH_P_ALL, PACKET_OUTGOING, SO_TIMESTAMPNS

SO_ATTACH_FILTER: Final = 26
_PACKET_TYPE: Final = -0x1000 + 4
"""SKF_AD_OFF + SKF_AD_PKTTYPE."""
_RTP_AT: Final = 14 + 20 + 8
TICK_MS: Final = 20.0


def _program(first: int, last: int, every: int) -> bytes:
    """Keep outgoing UDP from the ports `first`, `first + every`, ... up to `last`."""
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


class SentPackets:
    """Collects departure times while the block runs."""

    def __init__(self, first_port: int, last_port: int, every: int) -> None:
        """`every`: the step between the source ports that are watched."""
        self._times: dict[int, list[int]] = {}
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        program = _program(first_port, last_port, every)
        buffer = ctypes.create_string_buffer(program)
        filter_ = struct.pack("HL", len(program) // 8, ctypes.addressof(buffer))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.bind(("lo", ETH_P_ALL))
        self._socket.settimeout(0.2)
        self._stop = Event()
        self._thread = Thread(target=self._collect, daemon=True)

    def __enter__(self) -> SentPackets:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def _collect(self) -> None:
        while not self._stop.is_set():
            try:
                frame, extra, _, _ = self._socket.recvmsg(64, 64)
            except TimeoutError:
                continue
            if len(frame) > _RTP_AT and frame[_RTP_AT] >> 6 == 2:
                seconds, nanoseconds = struct.unpack("qq", extra[0][2][:16])
                port = struct.unpack_from("!H", frame, 34)[0]
                self._times.setdefault(port, []).append(seconds * 1_000_000_000 + nanoseconds)

    @property
    def streams(self) -> int:
        """Calls seen."""
        return len(self._times)

    def deviations_ms(self) -> NDArray[np.float64]:
        """How far the distances between successive packets of each call were from 20 ms."""
        parts = [np.abs(np.diff(times) / 1e6 - TICK_MS) for times in self._times.values()]
        return np.concatenate([np.zeros(0), *parts])
