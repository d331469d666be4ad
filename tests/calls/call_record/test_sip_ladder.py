"""The SIP ladder diagram of a call."""

from __future__ import annotations

from calls.call_record.sip_ladder import WIDTH, draw
from sipcore.trace.sip_capture import FIRST_MESSAGES, MAX_MESSAGES
from storage.calls.sip_traces import SipTrace, StoredSipMessage

US, PEER = "192.0.2.10:5060", "198.51.100.7:5060"


def message(
    ms: int, *, sent: bool, summary: str, peer: str = PEER, sdp: bool = False, again: bool = False
) -> StoredSipMessage:
    source, target = (US, peer) if sent else (peer, US)
    return {
        "at": "", "offset_ms": ms, "direction": "sent" if sent else "received", "transport": "udp", "source": source,
        "target": target, "summary": summary, "cseq": 1, "sdp": sdp, "again": again, "text": "",
    }  # fmt: skip


CALL = [
    message(0, sent=False, summary="INVITE sip:+4930100@192.0.2.10", sdp=True),
    message(4, sent=True, summary="180 Ringing (INVITE)"),
    message(560, sent=True, summary="200 OK (INVITE)", sdp=True, again=True),
    message(125031, sent=False, summary="BYE sip:192.0.2.10"),
]

DRAWN = """\
                Trunkline                                                             peer
             192.0.2.10:5060                                                    198.51.100.7:5060
                    |                                                                   |
      0.000 s       |<-------------- INVITE sip:+4930100@192.0.2.10 [SDP] --------------|
      0.004 s       |---------------------- 180 Ringing (INVITE) ---------------------->|
      0.560 s       |------------------ 200 OK (INVITE) [SDP, again] ------------------>|
    125.031 s       |<----------------------- BYE sip:192.0.2.10 -----------------------|
"""


def test_messages_are_arrows_between_this_server_and_the_peer() -> None:
    assert draw(SipTrace(CALL)) == DRAWN


def test_each_peer_has_a_lifeline_and_its_arrows_end_there() -> None:
    proxy = "203.0.113.1:5060"
    drawn = draw(SipTrace([*CALL, message(125040, sent=True, summary="200 OK (BYE)", peer=proxy)]))
    heads, addresses, rungs, first, *_, last = drawn.splitlines()
    assert heads.split() == ["Trunkline", "peer", "peer"] and addresses.split() == [US, PEER, proxy]
    columns = [at for at, c in enumerate(rungs) if c == "|"]
    assert len(columns) == 3
    assert [at for at, c in enumerate(first) if c == "|"] == columns
    assert [at for at, c in enumerate(last) if c == "|"] == [columns[0], columns[2]], "it passes the first peer"


def test_many_peers_and_long_addresses_do_not_exceed_the_width() -> None:
    peers = [f"[2001:db8:1234:5678:9abc:def0:1111:{number:x}]:50{number}" for number in range(10, 16)]
    long = "INVITE sip:" + "x" * 90
    messages = [message(number, sent=True, summary=long, peer=peer, sdp=True) for number, peer in enumerate(peers)]
    lines = draw(SipTrace(messages)).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert all("INVITE [SDP]" in line for line in lines[3:])
    assert lines[1].endswith("others")


def test_omitted_messages_are_noted_at_their_position() -> None:
    messages = [message(number, sent=False, summary=f"INFO {number}") for number in range(MAX_MESSAGES)]
    lines = draw(SipTrace(messages, 17)).splitlines()
    assert lines[3 + FIRST_MESSAGES].split() == ["...", "17", "messages", "are", "left", "out", "here"]
    assert f"INFO {FIRST_MESSAGES} " in lines[4 + FIRST_MESSAGES] and len(lines) == 4 + MAX_MESSAGES


def test_a_call_without_messages_has_a_note() -> None:
    assert draw(SipTrace(())) == "no SIP messages\n"
