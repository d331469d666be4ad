"""A packet socket on the loopback interface with the kernel's time stamps. Needs CAP_NET_RAW."""

from __future__ import annotations

import ctypes
import socket
import struct
from threading import Event, Thread
from typing import Final, Self

ETH_P_ALL: Final = 3
SO_TIMESTAMPNS: Final = 35
SO_ATTACH_FILTER: Final = 26
PACKET_OUTGOING: Final = 4
RTP_AT: Final = 14 + 20 + 8
"""Ethernet, IPv4 without options, UDP."""


class PacketCapture:
    """Sees every packet that is sent, or those that a classic BPF `program` picks, while the block runs; subclasses
    keep what they want of them in `keep`, which runs on a thread of its own."""

    def __init__(self, snap: int, program: bytes = b"") -> None:
        """`snap`: bytes that are seen of each packet."""
        self._snap = snap
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        if program:
            buffer = ctypes.create_string_buffer(program)
            attached = struct.pack("HL", len(program) // 8, ctypes.addressof(buffer))
            self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, attached)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.bind(("lo", ETH_P_ALL))
        self._socket.settimeout(0.2)
        self._stop = Event()
        self._thread = Thread(target=self._collect, daemon=True)

    def keep(self, frame: bytes, at_ns: int) -> None:
        """A packet, and when it was sent (CLOCK_REALTIME)."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def _collect(self) -> None:
        while not self._stop.is_set():
            try:
                frame, extra, _, address = self._socket.recvmsg(self._snap, 256)
            except TimeoutError:
                continue
            if address[2] == PACKET_OUTGOING:
                seconds, nanoseconds = struct.unpack("qq", extra[0][2][:16])
                self.keep(frame, seconds * 1_000_000_000 + nanoseconds)
