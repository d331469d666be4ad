"""The SIP capture: dialogs of messages, limits and retention; time is an argument."""

from __future__ import annotations

from itertools import count

from structlog.testing import capture_logs

from sipcore.trace import sip_capture
from sipcore.trace.sip_capture import (
    ENDED_TTL_S,
    FIRST_MESSAGES,
    LOG_WINDOW_S,
    MAX_DIALOG_BYTES,
    MAX_LOGGED,
    MAX_MESSAGES,
    MAX_TOTAL_BYTES,
    SWEEP_INTERVAL_S,
    UNANSWERED_TTL_S,
    DialogKey,
    SipCapture,
)
from sipcore.trace.sip_message import SipMessage

NUMBERS = count()


def message(
    method: str, status: int = 0, *, sent: bool = False, call_id: str = "c1", tags: tuple[str, str] = ("a", "b"),
    size: int = 400, raw: bytes | None = None,
) -> SipMessage:  # fmt: skip
    raw = raw or f"{next(NUMBERS)} ".encode().ljust(size)
    return SipMessage(0, sent, "udp", "us", "peer", call_id, *tags, method, 1, status, False, raw)


def inbound(sip_capture: SipCapture, now_s: float, call_id: str = "c1", tag: str = "a") -> DialogKey:
    """An inbound INVITE and its answer."""
    to_come, known = (tag, ""), (tag, "b")
    sip_capture.add([message("INVITE", call_id=call_id, tags=to_come)], now_s)
    sip_capture.add([message("INVITE", 200, sent=True, call_id=call_id, tags=known)], now_s)
    return DialogKey(call_id, "callee", tag)


def test_requests_of_both_ends_belong_to_the_dialog() -> None:
    sip_capture = SipCapture()
    key = inbound(sip_capture, 0)
    sip_capture.add(
        [message("ACK"), message("BYE", sent=True, tags=("b", "a")), message("BYE", 200, tags=("b", "a"))], 1
    )
    trail = sip_capture.dialog_trace(key)
    assert trail is not None and len(trail) == 5 and trail.ended


def test_both_ends_of_a_call_to_ourselves_are_separate_dialogs() -> None:
    sip_capture = SipCapture()
    sip_capture.add([message("INVITE", sent=True, tags=("a", "")), message("INVITE", tags=("a", ""))], 0)
    sip_capture.add([message("INVITE", 180, sent=True), message("INVITE", 180)], 0)
    sip_capture.add([message("BYE", sent=True, tags=("b", "a")), message("BYE", tags=("b", "a"))], 1)
    caller, callee = (sip_capture.dialog_trace(DialogKey("c1", role, "a")) for role in ("caller", "callee"))
    assert caller is not None and [each.message.sent for each in caller] == [True, False, False]
    assert callee is not None and [each.message.sent for each in callee] == [False, True, True]


def test_callers_with_the_same_call_id_have_separate_dialogs() -> None:
    sip_capture = SipCapture()
    first, second = inbound(sip_capture, 0, tag="a1"), inbound(sip_capture, 0, tag="a2")
    assert [len(sip_capture.dialog_trace(key) or ()) for key in (first, second)] == [2, 2]
    assert sip_capture.find_dialogs("c1", "callee") == [first, second]
    assert sip_capture.find_dialogs("c1", "callee", "a2") == [second]
    assert sip_capture.find_dialogs("c1", "callee", "a3") == sip_capture.find_dialogs("c1", "caller") == []


def test_message_without_an_invite_has_no_dialog() -> None:
    sip_capture = SipCapture()
    seen: list[DialogKey | None] = []
    sip_capture.watchers.add(lambda message, key, again: seen.append(key))
    sip_capture.add([message("REGISTER", sent=True), message("OPTIONS"), message("INVITE", 200), message("BYE")], 0)
    assert seen == [None] * 4


def test_long_dialog_keeps_its_first_and_last_messages() -> None:
    sip_capture = SipCapture()
    key = inbound(sip_capture, 0)
    later = [message("INFO") for _ in range(500)]
    sip_capture.add(later, 1)
    trail = sip_capture.dialog_trace(key)
    assert trail is not None
    kept = [each.message for each in trail]
    assert len(kept) == MAX_MESSAGES and trail.left_out == 502 - MAX_MESSAGES
    assert (
        kept[2:FIRST_MESSAGES] == later[: FIRST_MESSAGES - 2]
        and kept[FIRST_MESSAGES:] == later[-(MAX_MESSAGES - FIRST_MESSAGES) :]
    )


def test_the_bytes_of_a_dialog_are_bounded() -> None:
    sip_capture = SipCapture()
    key = inbound(sip_capture, 0)
    sip_capture.add([message("INFO", size=8000) for _ in range(100)], 1)
    trail = sip_capture.dialog_trace(key)
    assert trail is not None
    assert MAX_DIALOG_BYTES - 8000 < sum(len(each.message.raw) for each in trail) == trail.size <= MAX_DIALOG_BYTES
    assert len(trail) + trail.left_out == 102


def test_dialog_with_the_oldest_last_message_is_dropped_first() -> None:
    sip_capture = SipCapture()
    keys = [inbound(sip_capture, 0, f"c{number}") for number in range(MAX_TOTAL_BYTES // (32 * 8000))]
    for key in keys:
        sip_capture.add([message("INFO", call_id=key.call_id, size=8000) for _ in range(31)], 1)
    sip_capture.add([message("INFO", call_id=keys[0].call_id)], 2)
    more = [inbound(sip_capture, 3, f"d{number}") for number in range(3000)]
    lost = [key for key in keys + more if sip_capture.dialog_trace(key) is None]
    assert lost and lost == keys[1 : 1 + len(lost)]


def test_ended_dialog_is_dropped_after_its_retransmissions() -> None:
    sip_capture = SipCapture()
    over, refused, alive, silent = (inbound(sip_capture, 0, name) for name in ("over", "refused", "alive", "silent"))
    sip_capture.remove_dialog(silent)
    sip_capture.add([message("BYE", call_id="over")], 10)
    sip_capture.remove_dialog(refused)
    sip_capture.add([message("INVITE", call_id="refused", tags=("a", ""))], 10)
    sip_capture.add([message("INVITE", 486, sent=True, call_id="refused")], 10)
    sip_capture.add([message("INVITE", call_id="silent", tags=("a", ""))], 10)
    sip_capture.add([], 10 + ENDED_TTL_S)
    assert all(sip_capture.dialog_trace(key) is not None for key in (over, refused, alive, silent))
    sip_capture.add([], 10 + ENDED_TTL_S + SWEEP_INTERVAL_S + 1)
    assert [sip_capture.dialog_trace(key) is not None for key in (over, refused, alive, silent)] == [
        False,
        False,
        True,
        True,
    ]
    sip_capture.add([], 10 + UNANSWERED_TTL_S + SWEEP_INTERVAL_S + 1)
    assert [sip_capture.dialog_trace(key) is not None for key in (alive, silent)] == [True, False]


def test_dialog_is_kept_while_its_call_goes_on_at_another_target() -> None:
    sip_capture = SipCapture()
    for tag in ("a", "b"):
        sip_capture.add([message("INVITE", sent=True, tags=(tag, ""))], 0)
        sip_capture.add([message("INVITE", 200 if tag == "b" else 302, tags=(tag, "z"))], 0)
    first, second = sip_capture.find_dialogs("c1", "caller")
    sip_capture.add([], ENDED_TTL_S + SWEEP_INTERVAL_S + 1)
    assert sip_capture.find_dialogs("c1", "caller") == [first, second]
    sip_capture.add([message("BYE", sent=True, tags=("b", "z"))], 100)
    sip_capture.add([], 100 + ENDED_TTL_S + SWEEP_INTERVAL_S + 1)
    assert not sip_capture.find_dialogs("c1", "caller")


def test_challenged_invite_continues_its_dialog() -> None:
    sip_capture = SipCapture()
    sip_capture.add(
        [message("INVITE", sent=True, tags=("a", "")), message("INVITE", 401), message("ACK", sent=True)], 0
    )
    [key] = sip_capture.find_dialogs("c1", "caller")
    sip_capture.add([message("INVITE", sent=True, tags=("a", ""))], 1)
    trail = sip_capture.dialog_trace(key)
    assert trail is not None and not trail.ended and len(trail) == 4


def test_refusal_before_a_leg_is_logged_once_with_a_limit() -> None:
    sip_capture = SipCapture()
    why = b'SIP/2.0 488 Not Acceptable Here\r\nWarning: 304 us "Media type not available"\r\n\r\n'
    with capture_logs() as events:
        for number in range(MAX_LOGGED + 5):
            logged, other = f"c{number}", f"d{number}"
            sip_capture.add_leg(other, "a")
            for call_id in (logged, other):
                sip_capture.add([message("INVITE", call_id=call_id, tags=("a", ""))], 1)
                refusal = message("INVITE", 488, sent=True, call_id=call_id, raw=why + call_id.encode())
                sip_capture.add([refusal, refusal], 1)
    assert [event["sip_call_id"] for event in events] == [f"c{number}" for number in range(MAX_LOGGED)]
    assert events[0] == {
        "event": "sip.refused", "log_level": "info", "code": 488, "source": "peer", "sip_call_id": "c0",
        "why": '304 us "Media type not available"',
    }  # fmt: skip
    with capture_logs() as events:
        sip_capture.add(
            [message("INVITE", call_id="e"), message("INVITE", 488, sent=True, call_id="e")], 1 + 2 * LOG_WINDOW_S
        )
        sip_capture.add(
            [message("INVITE", call_id="f"), message("INVITE", 503, sent=True, call_id="f")], 1 + 2 * LOG_WINDOW_S
        )
        sip_capture.add(
            [message("INVITE", sent=True, call_id="g"), message("INVITE", 486, call_id="g")], 1 + 2 * LOG_WINDOW_S
        )
    assert [event["sip_call_id"] for event in events] == ["e"]


def test_equal_bytes_in_the_same_direction_are_a_retransmission() -> None:
    capture = SipCapture()
    seen: list[bool] = []
    capture.watchers.add(lambda message, key, again: seen.append(again))
    same = b"INVITE sip:100@192.0.2.1 SIP/2.0"
    capture.add([message("INVITE", raw=same), message("INVITE", raw=same, sent=True), message("INVITE", raw=same)], 0)
    assert seen == [False, False, True]
    capture.add([message("INFO") for _ in range(sip_capture.MAX_TRACKED)], 1)
    capture.add([message("INVITE", raw=same)], 1)
    capture.add([message("INFO") for _ in range(3 * sip_capture.MAX_TRACKED)], 2)
    capture.add([message("INVITE", raw=same)], 3)
    assert (seen[3 + sip_capture.MAX_TRACKED], seen[-1]) == (True, False), "it is remembered for a while"
    assert capture.retransmitted == {False: 2, True: 0}


def test_hashes_of_messages_expire_after_retransmissions() -> None:
    capture = SipCapture()
    seen: list[bool] = []
    capture.watchers.add(lambda message, key, again: seen.append(again))
    same = b"INVITE sip:100@192.0.2.1 SIP/2.0"
    for now_s in (100, 100 + sip_capture.ENDED_TTL_S):
        capture.add([message("INVITE", raw=same)], now_s)
    assert seen == [False, True]
    for turns in (2, 4):
        capture.add([message("OPTIONS")], 100 + turns * sip_capture.ENDED_TTL_S)
    capture.add([message("INVITE", raw=same)], 100 + 5 * sip_capture.ENDED_TTL_S)
    assert seen[-1] is False
