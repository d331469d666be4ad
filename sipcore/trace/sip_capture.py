"""The SIP capture: a bounded buffer of the messages of calls, by dialog, with counters and watchers of all messages.

The tap copies each message of a known peer into a ring; the event loop, woken by a file descriptor, reads them. The SIP
stack never waits: when messages are not read in time, the oldest are lost, and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, NamedTuple

import structlog

from sipcore import _native
from sipcore.messages.headers import header_value, printable, without_port
from sipcore.trace.sip_message import SipMessage

BATCH_INTERVAL_S: Final = 0.05
"""Messages within this time are read in one batch."""
FIRST_MESSAGES: Final = 20
"""The first messages of a dialog are never dropped."""
MAX_MESSAGES: Final = 200
MAX_DIALOG_BYTES: Final = 256 * 1024
MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
"""Of all dialogs; above that the dialog with the oldest last message is dropped."""
ENDED_TTL_S: Final = 40.0
"""Retention of a dialog after its end: longer than retransmissions last (64 times T1, RFC 3261 17.1.1.2)."""
UNANSWERED_TTL_S: Final = 600.0
"""Retention of an unanswered dialog after its last message."""
SWEEP_INTERVAL_S: Final = 5.0
LOG_WINDOW_S: Final = 10.0
MAX_LOGGED: Final = 20
"""Refusals that are logged within `LOG_WINDOW_S`."""
MAX_TRACKED: Final = 20_000
"""Messages whose retransmissions are recognized, at least; fewer when they are older than `ENDED_TTL_S`."""

METHODS: Final = frozenset(
    ("ACK", "BYE", "CANCEL", "INFO", "INVITE", "MESSAGE", "NOTIFY", "OPTIONS", "PRACK", "REFER", "REGISTER", "UPDATE")
)
"""Methods that are counted by name; peers may invent others."""

Role = Literal["caller", "callee"]
Watcher = Callable[["SipMessage", "DialogKey | None", bool], None]
"""Called on the event loop with each message, its dialog, and whether it is a retransmission; must not raise or
block."""

log = structlog.get_logger(__name__)


class DialogKey(NamedTuple):
    """A call's dialog and this endpoint's role in it, because an outbound call to the endpoint itself has the same
    Call-ID at both ends. `caller_tag` is the From tag of its INVITE."""

    call_id: str
    role: Role
    caller_tag: str


class CapturedMessage(NamedTuple):
    """A message of a dialog. `retransmission`: the same bytes were on the wire before."""

    message: SipMessage
    retransmission: bool


class DialogTrace:
    """The messages of one dialog."""

    def __init__(self) -> None:
        self.left_out = 0
        self.size = 0
        self.last_s = 0.0
        self.began_ns = 0
        self.answered = False
        self.ended = False
        self._first: list[CapturedMessage] = []
        self._last: deque[CapturedMessage] = deque()

    def __iter__(self) -> Iterator[CapturedMessage]:
        yield from self._first
        yield from self._last

    def __len__(self) -> int:
        return len(self._first) + len(self._last)

    def add(self, captured: CapturedMessage, now_s: float) -> None:
        """Store a message: the first `FIRST_MESSAGES`, and the last of the others."""
        self.last_s = now_s
        self.began_ns = self.began_ns or captured.message.at_ns
        self._update_state(captured.message)
        self.size += len(captured.message.raw)
        (self._first if len(self._first) < FIRST_MESSAGES else self._last).append(captured)
        while self._last and (len(self) > MAX_MESSAGES or self.size > MAX_DIALOG_BYTES):
            self.size -= len(self._last.popleft().message.raw)
            self.left_out += 1

    def _update_state(self, message: SipMessage) -> None:
        if message.method == "BYE":
            self.ended = True
        elif message.method == "INVITE" and not self.answered:
            self.answered = 200 <= message.status < 300
            self.ended = message.status >= 300

    def is_expired(self, now_s: float) -> bool:
        """True when the dialog can be dropped."""
        idle_s = now_s - self.last_s
        return idle_s > ENDED_TTL_S if self.ended else not self.answered and idle_s > UNANSWERED_TTL_S


class SipCapture:
    """Messages of live calls, and counters of all messages. Event loop only; times are seconds of any monotonic
    clock."""

    def __init__(self) -> None:
        self.received: Counter[tuple[str, int]] = Counter()
        """By method and status class (0: the request itself)."""
        self.sent: Counter[tuple[str, int]] = Counter()
        self.retransmitted: Counter[bool] = Counter()
        """Retransmissions; True: sent, False: received."""
        self.lost = 0
        """Messages that were not read in time."""
        self.watchers: set[Watcher] = set()
        self.on_answered: Callable[[Role, float], None] | None = None
        """Called with our role in an answered call, and the seconds since its INVITE."""
        self._traces: dict[DialogKey, DialogTrace] = {}
        self._by_call_id: dict[str, list[DialogKey]] = {}
        self._size = 0
        self._last_sweep_s = 0.0
        self._seen: tuple[set[int], set[int]] = (set(), set())
        """Hashes of recent and of older messages."""
        self._last_rotation_s = 0.0
        self._legs: set[DialogKey] = set()
        self._logged = 0
        self._logged_since_s = 0.0

    def add(self, messages: Iterable[SipMessage], now_s: float) -> None:
        """Add new messages, oldest first."""
        for message in messages:
            retransmission = self._record_hash(message, now_s)
            counts = self.sent if message.sent else self.received
            counts[message.method if message.method in METHODS else "other", message.status // 100] += 1
            self.retransmitted[message.sent] += retransmission
            key = self._add_to_dialog(CapturedMessage(message, retransmission), now_s)
            for watcher in tuple(self.watchers):
                watcher(message, key, retransmission)
        if now_s - self._last_sweep_s > SWEEP_INTERVAL_S:
            self._sweep(now_s)

    def add_leg(self, call_id: str, caller_tag: str) -> None:
        """An INVITE has become a leg: its refusal is logged by `calls`."""
        if len(self._legs) >= MAX_TRACKED:
            self._legs.clear()
        self._legs.add(DialogKey(call_id, "callee", caller_tag))

    def find_dialogs(self, call_id: str, role: Role, caller_tag: str = "") -> list[DialogKey]:
        """The dialogs with this Call-ID and role, the first INVITE first; without a tag all of them: an INVITE that is
        sent to another target has the same Call-ID and another tag."""
        keys = (key for key in self._by_call_id.get(call_id, ()) if key.role == role)
        return [key for key in keys if caller_tag in ("", key.caller_tag)]

    def dialog_trace(self, key: DialogKey) -> DialogTrace | None:
        """The messages of a dialog; None when they were dropped."""
        return self._traces.get(key)

    def remove_dialog(self, key: DialogKey) -> None:
        """Drop a dialog whose messages have been stored."""
        if key in self._traces:
            self._remove(key)

    def _sweep(self, now_s: float) -> None:
        """Drop dialogs that have ended, unless their call goes on at another target, and hashes of messages that cannot
        be retransmitted any more."""
        self._last_sweep_s = now_s
        if now_s - self._last_rotation_s > ENDED_TTL_S:
            self._rotate_hashes(now_s)
        expired = [key for key, trace in self._traces.items() if trace.is_expired(now_s)]
        live = {key.call_id for key in self._traces.keys() - expired if key.role == "caller"}
        for key in expired:
            if key.role == "callee" or key.call_id not in live:
                self._remove(key)

    def _rotate_hashes(self, now_s: float) -> None:
        self._last_rotation_s = now_s
        self._seen = set(), self._seen[0]

    def _record_hash(self, message: SipMessage, now_s: float) -> bool:
        recent, older = self._seen
        name = hash((message.sent, message.raw))
        if name in recent or name in older:
            return True
        if len(recent) >= MAX_TRACKED:
            self._rotate_hashes(now_s)
        self._seen[0].add(name)
        return False

    def _add_to_dialog(self, captured: CapturedMessage, now_s: float) -> DialogKey | None:
        """Add a message to its dialog; returns None for a message of no call, as a REGISTER."""
        key = self._dialog_of(captured.message)
        if key is None:
            return None
        trace = self._traces.pop(key, None) or self._create_trace(key)
        self._traces[key] = trace  # the dialogs are in the order of their last messages
        before, answered = trace.size, trace.answered
        trace.add(captured, now_s)
        self._size += trace.size - before
        if key.role == "callee" and key not in self._legs and _is_refusal(captured):
            self._log_refusal(captured.message, now_s)
        if trace.answered and not answered and self.on_answered:
            self.on_answered(key.role, (captured.message.at_ns - trace.began_ns) / 1e9)
        while self._size > MAX_TOTAL_BYTES and len(self._traces) > 1:
            self._remove(next(iter(self._traces)))
        return key

    def _log_refusal(self, message: SipMessage, now_s: float) -> None:
        """Log an INVITE that the guard or PJSIP refused before it became a leg."""
        if now_s - self._logged_since_s > LOG_WINDOW_S:
            self._logged, self._logged_since_s = 0, now_s
        self._logged += 1
        if self._logged <= MAX_LOGGED:
            why = header_value(message.raw.decode(errors="replace"), "Warning", "Warning")
            log.info(
                "sip.refused", code=message.status, source=without_port(message.peer), why=printable(why) or None,
                sip_call_id=message.call_id,
            )  # fmt: skip

    def _dialog_of(self, message: SipMessage) -> DialogKey | None:
        """The dialog of a message: the From tag of its request is that of the caller or that of the callee."""
        our_request = message.sent == (message.status == 0)
        as_caller: Role = "caller" if our_request else "callee"
        as_callee: Role = "callee" if our_request else "caller"
        key = DialogKey(message.call_id, as_caller, message.from_tag)
        if key in self._traces:
            return key
        other = DialogKey(message.call_id, as_callee, message.to_tag)
        if other in self._traces:
            return other
        return key if message.method == "INVITE" and message.status == 0 else None

    def _create_trace(self, key: DialogKey) -> DialogTrace:
        self._by_call_id.setdefault(key.call_id, []).append(key)
        return DialogTrace()

    def _remove(self, key: DialogKey) -> None:
        self._size -= self._traces.pop(key).size
        self._legs.discard(key)
        keys = self._by_call_id[key.call_id]
        keys.remove(key)
        if not keys:
            del self._by_call_id[key.call_id]


def _is_refusal(captured: CapturedMessage) -> bool:
    """True for our refusal of an INVITE, sent for the first time. 503 is left to the metrics: overload, or a flood."""
    message = captured.message
    refused = message.status >= 400 and message.status != 503
    return refused and message.sent and not captured.retransmission and message.method == "INVITE"


class TapReader:
    """Moves messages from the ring of the message tap to the capture. `start` is called on the event loop, when the
    tap is installed."""

    def __init__(self, sip_capture: SipCapture) -> None:
        self._capture = sip_capture
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptor = -1
        self._next_read: asyncio.TimerHandle | asyncio.Handle | None = None

    def start(self, descriptor: int) -> None:
        """Read messages whenever the file descriptor signals them."""
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._loop.add_reader(descriptor, self._on_readable)
        self.read()  # earlier ones are not signalled

    def stop(self) -> None:
        """Read the remaining messages, and stop, before the tap is removed. Idempotent."""
        if self._loop is None:
            return
        while self.read():
            pass
        self._loop.remove_reader(self._descriptor)
        if self._next_read is not None:
            self._next_read.cancel()
        self._loop = None

    def read(self) -> bool:
        """Read a batch of messages; returns False when there are none."""
        rows, lost = _native.tap_read()
        if lost > self._capture.lost:
            log.warning("sip.messages_not_seen", count=lost - self._capture.lost)
            self._capture.lost = lost
        if self._loop is not None:
            self._capture.add(map(_message, rows), self._loop.time())
        return bool(rows)

    def _on_readable(self) -> None:
        with contextlib.suppress(BlockingIOError):  # read meanwhile
            os.eventfd_read(self._descriptor)
        if self._next_read is None and self._loop is not None:
            self._next_read = self._loop.call_later(BATCH_INTERVAL_S, self._read_batches)

    def _read_batches(self) -> None:
        self._next_read = None
        if self.read() and self._loop is not None:  # other work runs between two batches
            self._next_read = self._loop.call_soon(self._read_batches)


def _message(row: _native.TapRow) -> SipMessage:
    at_ns, sent, transport, ours, peer, call_id, from_tag, to_tag, method, cseq, status, with_sdp, raw = row
    names = _printable(call_id), _printable(from_tag), _printable(to_tag), _printable(method)
    return SipMessage(at_ns, sent, transport.lower(), ours, peer, *names, cseq, status, with_sdp, raw)


def _printable(text: str) -> str:
    """As `headers.printable`, which leaves nearly all texts as they are."""
    return text if text.isascii() and text.isprintable() and len(text) <= 128 else printable(text)
