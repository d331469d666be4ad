"""A call's SIP messages as a capture file for Wireshark, tshark and sngrep (draft-ietf-opsawg-pcap)."""

from __future__ import annotations

import struct
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from storage.calls.sip_traces import SipTrace, StoredSipMessage

MEDIA_TYPE: Final = "application/vnd.tcpdump.pcap"
MAX_PACKET: Final = 65_535
_MAGIC_MICROSECONDS: Final = 0xA1B2C3D4
_LINKTYPE_RAW: Final = 101
"""Packets begin with the IPv4 or IPv6 header."""
_UDP: Final = 17
_UDP_HEADER: Final = 8
_HOPS: Final = 64


def pcap(trace: SipTrace) -> bytes:
    """Returns the capture file. Each message is one UDP datagram between its addresses, those that came over TCP or TLS
    too; texts are as they are stored, without secrets, so Content-Length may be another one than before."""
    header = struct.pack("<IHHiIII", _MAGIC_MICROSECONDS, 2, 4, 0, 0, MAX_PACKET, _LINKTYPE_RAW)
    return header + b"".join(map(_record, trace.messages))


def _record(message: StoredSipMessage) -> bytes:
    at = datetime.fromisoformat(message["at"])
    packet = _packet(message)
    return struct.pack("<IIII", int(at.timestamp()), at.microsecond, len(packet), len(packet)) + packet


def _packet(message: StoredSipMessage) -> bytes:
    source, source_port = _endpoint(message["source"])
    target, target_port = _endpoint(message["target"])
    largest = MAX_PACKET - 40 - _UDP_HEADER
    text = message["text"].encode()[:largest]
    length = _UDP_HEADER + len(text)
    pseudo_header = source.packed + target.packed + struct.pack("!II", length, _UDP)
    datagram = struct.pack("!HHHH", source_port, target_port, length, 0) + text
    checksum = _checksum(pseudo_header + datagram) or 0xFFFF
    datagram = datagram[:6] + struct.pack("!H", checksum) + datagram[_UDP_HEADER:]
    if isinstance(source, IPv6Address):
        header = struct.pack("!IHBB", 6 << 28, length, _UDP, _HOPS)
        return header + source.packed + target.packed + datagram
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, _HOPS, _UDP, 0) + source.packed + target.packed
    return header[:10] + struct.pack("!H", _checksum(header)) + header[12:] + datagram


def _endpoint(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    host, _, port = text.rpartition(":")
    return ip_address(host.strip("[]")), int(port)


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
