"""The capture file of a call's SIP messages, read by tshark."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from calls.call_record.sip_pcap import pcap
from storage.calls.sip_traces import SipTrace, StoredSipMessage

INVITE = (
    "INVITE sip:100@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.2;branch=z9hG4bK1\r\nMax-Forwards: 70\r\n"
    "From: <sip:200@192.0.2.2>;tag=1\r\nTo: <sip:100@192.0.2.1>\r\nCall-ID: a@b\r\nCSeq: 1 INVITE\r\n"
    "Content-Length: 0\r\n\r\n"
)


def message(source: str, target: str, text: str = INVITE, at: str = "2026-11-21T05:00:00.123Z") -> StoredSipMessage:
    return StoredSipMessage(
        at=at,
        offset_ms=0,
        direction="received",
        transport="tls",
        source=source,
        target=target,
        summary="INVITE",
        cseq=1,
        sdp=False,
        again=False,
        text=text,
    )


def read(tmp_path: Path, trace: SipTrace, *fields: str) -> list[list[str]]:
    """The fields of each packet, as tshark reads them with its checks of checksums."""
    file = tmp_path / "call.pcap"
    file.write_bytes(pcap(trace))
    options = ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
    wanted = [each for field in fields for each in ("-e", field)]
    command = ["tshark", "-r", str(file), *options, "-T", "fields", "-E", "separator=|", *wanted]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split("|") for line in ran.stdout.splitlines()]


@pytest.mark.parametrize(
    ("source", "target", "fields"),
    [
        ("192.0.2.2:5060", "192.0.2.1:5061", ("ip.src", "ip.dst", "ip.checksum.status")),
        ("[2001:db8::2]:5060", "[2001:db8::1]:5061", ("ipv6.src", "ipv6.dst", "ipv6.version")),
    ],
)
def test_a_message_is_a_datagram_between_its_addresses(
    tmp_path: Path, source: str, target: str, fields: tuple[str, ...]
) -> None:
    common = ("udp.srcport", "udp.dstport", "udp.checksum.status", "sip.Request-Line", "frame.time_epoch")
    (found,) = read(tmp_path, SipTrace([message(source, target)]), *fields, *common)
    good = {"ip.checksum.status": "1", "ipv6.version": "6"}[fields[2]]
    assert found[:3] == [source.rpartition(":")[0].strip("[]"), target.rpartition(":")[0].strip("[]"), good]
    assert found[3:7] == ["5060", "5061", "1", "INVITE sip:100@192.0.2.1 SIP/2.0"]
    assert found[7].startswith("1795237200.123")


def test_a_call_without_messages_is_an_empty_file(tmp_path: Path) -> None:
    assert read(tmp_path, SipTrace([]), "ip.src") == []


def test_a_message_that_no_datagram_can_hold_is_cut(tmp_path: Path) -> None:
    ((length,),) = read(tmp_path, SipTrace([message("192.0.2.2:1", "192.0.2.1:2", "x" * 70_000)]), "udp.length")
    assert int(length) < 65_536
