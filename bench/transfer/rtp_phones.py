"""The audio of the benchmark's phones: one thread sends a packet of each every 20 ms, at times that are spread over
these 20 ms, and receives with the kernel's time stamps."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Final

from bench.transfer.markers import NUMBERS, PACKET_BYTES, marked_packet, noise_packet
from bench.transfer.sip_dialogs import Negotiated

PACKET_NS: Final = 20_000_000
KEY_MS: Final = 40
"""Duration of a pressed key: the shortest that a receiver must accept (ITU-T Q.24)."""
_SO_TIMESTAMPNS: Final = 35
_POLL_S: Final = 0.0005
_MAX_READS: Final = 16
"""Packets that are read before the next one that is due is sent."""
_PRIORITY: Final = 5
"""Below the real-time priority of the server's pump."""
_EVENT_VOLUME: Final = 10

Packet = tuple[int, bytes]
"""Time (CLOCK_REALTIME, ns) and bytes of a received packet."""


class RtpPhone:
    """The audio of one phone: PCMU, line noise or markers."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.port: int = self.socket.getsockname()[1]
        self.marking = False
        """Markers are sent in place of noise."""
        self.sent: list[tuple[int, int]] = []
        """Time (as of `Packet`) and number of each marker that was sent."""
        self.received: list[Packet] = []
        self.key_at_ns = 0
        """When the first packet of the key was sent; 0 before."""
        self._peer: Negotiated | None = None
        self._sequence = self._timestamp = self._key_packets = 0

    def connect(self, peer: Negotiated) -> None:
        """Sends to this peer from now on."""
        self._peer = peer

    def press_key(self) -> None:
        """Sends key 1 (RFC 4733) for `KEY_MS` instead of audio, then markers."""
        self._key_packets = KEY_MS // 20

    def send(self) -> None:
        """Sends the packet that is due."""
        if self._peer is None:
            return
        if self._key_packets:
            self._send_key(self._peer)
        elif self.marking:
            number = self._sequence % NUMBERS
            at_ns = time.time_ns()
            self._send(0, marked_packet(number), self._timestamp)
            self.sent.append((at_ns, number))
        else:
            self._send(0, noise_packet(self._sequence), self._timestamp)
        self._timestamp += PACKET_BYTES

    def _send_key(self, peer: Negotiated) -> None:
        """The last packet of an event is sent three times (RFC 4733 2.5.1.4)."""
        count = KEY_MS // 20
        began = self._timestamp - (count - self._key_packets) * PACKET_BYTES
        self.key_at_ns = self.key_at_ns or time.time_ns()
        self._key_packets -= 1
        ended = self._key_packets == 0
        length = (count - self._key_packets) * PACKET_BYTES
        payload = struct.pack(">BBH", 1, _EVENT_VOLUME | 0x80 * ended, length)
        for _ in range(3 if ended else 1):
            self._send(peer.event, payload, began)
        self.marking = ended

    def _send(self, kind: int, payload: bytes, timestamp: int) -> None:
        assert self._peer is not None
        header = struct.pack(">BBHII", 0x80, kind, self._sequence & 0xFFFF, timestamp & 0xFFFFFFFF, self.port)
        self._sequence += 1
        with contextlib.suppress(ConnectionRefusedError):  # the server has closed the port
            self.socket.sendto(header + payload, self._peer.address)

    def receive(self, keep: bool) -> None:
        """Reads a packet. Raises `BlockingIOError`."""
        data, ancillary, _, _ = self.socket.recvmsg(2048, 64)
        if keep and not 192 <= data[1] <= 223:  # RTCP (RFC 5761, 4)
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
            self.received.append((seconds * 1_000_000_000 + nanoseconds, data))


class RtpThread:
    """Sends and receives for all phones until `close`."""

    def __init__(self, phones: list[RtpPhone]) -> None:
        self.keeping = False
        """Received packets are kept."""
        self._phones = phones
        self._by_fd = {phone.socket.fileno(): phone for phone in phones}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
        with select.epoll() as poll:
            for fd in self._by_fd:
                poll.register(fd, select.EPOLLIN)
            for due_ns, phone in self._schedule():
                while (left_ns := due_ns - time.monotonic_ns()) > 0:
                    time.sleep(min(left_ns / 1e9, _POLL_S))
                    self._receive(poll)
                phone.send()
                if self._closing.is_set():
                    return

    def _schedule(self) -> Iterator[tuple[int, RtpPhone]]:
        """The phones in turn, each with the time of its next packet."""
        due_ns = time.monotonic_ns()
        while True:
            for at, phone in enumerate(self._phones):
                yield due_ns + PACKET_NS * at // len(self._phones), phone
            due_ns += PACKET_NS

    def _receive(self, poll: select.epoll) -> None:
        for fd, _ in poll.poll(0, _MAX_READS):
            with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                self._by_fd[fd].receive(self.keeping)
