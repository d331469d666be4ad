"""Packet capture on an interface, by default loopback: a packet socket with the kernel's time stamps. Needs
CAP_NET_RAW."""

from __future__ import annotations

import ctypes
import socket
import struct
from threading import Event, Thread
from typing import Final, Self

ETH_P_ALL: Final = 3
SO_TIMESTAMPNS: Final = 35
SO_ATTACH_FILTER: Final = 26
PACKET_HOST: Final = 0
PACKET_OUTGOING: Final = 4
RTP_OFFSET: Final = 14 + 20 + 8
"""Bytes before the RTP header: Ethernet, IPv4 without options, UDP."""


class PacketCapture:
    """Captures every packet that is sent, or arrives, or those that a classic BPF `program` accepts, while its `with`
    block runs. Subclasses override `on_packet`, which runs on the capture thread."""

    def __init__(
        self, snap_length: int, program: bytes = b"", *, interface: str = "lo", direction: int = PACKET_OUTGOING
    ) -> None:
        """`snap_length`: captured bytes of each packet; `direction`: PACKET_OUTGOING, or PACKET_HOST for packets that
        arrive."""
        self._direction = direction
        self._snap_length = snap_length
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        if program:
            buffer = ctypes.create_string_buffer(program)
            attached = struct.pack("HL", len(program) // 8, ctypes.addressof(buffer))
            self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, attached)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.bind((interface, ETH_P_ALL))
        self._socket.settimeout(0.2)
        self._stop = Event()
        self._thread = Thread(target=self._collect, daemon=True)

    def on_packet(self, frame: bytes, at_ns: int) -> None:
        """Called for each packet with the time at which it was sent (CLOCK_REALTIME)."""
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
                frame, ancillary, _, address = self._socket.recvmsg(self._snap_length, 256)
            except TimeoutError:
                continue
            if address[2] == self._direction:
                seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
                self.on_packet(frame, seconds * 1_000_000_000 + nanoseconds)
