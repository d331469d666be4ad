"""What was said over SIP: the messages of calls, kept by dialog, and everything for those who watch it live.

The tap copies each message of a known peer into a ring; here they are taken out of it on the event loop, which a
descriptor wakes. The SIP stack never waits: when nobody takes them, the oldest are lost, and counted.
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

GATHER_S: Final = 0.05
"""Messages that come within this time are taken together."""
KEPT_FIRST: Final = 20
"""Messages of a dialog that stay, whatever comes after them."""
MAX_MESSAGES: Final = 200
MAX_DIALOG_BYTES: Final = 256 * 1024
MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
"""Of all dialogs together: then the one that has been silent for longest is forgotten."""
LINGER_S: Final = 40.0
"""How long a dialog is kept after its end: longer than its messages are repeated (64 times T1, RFC 3261 17.1.1.2)."""
UNANSWERED_S: Final = 600.0
"""How long a dialog without an answer is kept after its last message."""
SWEEP_S: Final = 5.0
LOG_WINDOW_S: Final = 10.0
MAX_LOGGED: Final = 20
"""Refusals that are logged in such a time."""
MAX_REMEMBERED: Final = 20_000
"""Messages that are known again, at least; fewer when they are older than `OVER_S`."""

METHODS: Final = frozenset(
    ("ACK", "BYE", "CANCEL", "INFO", "INVITE", "MESSAGE", "NOTIFY", "OPTIONS", "PRACK", "REFER", "REGISTER", "UPDATE")
)
"""Those that are counted apart; peers may make up others."""

Role = Literal["caller", "callee"]
Watcher = Callable[["SipMessage", "DialogKey | None", bool], None]
"""Is given each message, its dialog, and whether it came again. Called on the event loop; must not raise or block."""

log = structlog.get_logger(__name__)


class DialogKey(NamedTuple):
    """A call's dialog, and our role in it: when a call of ours comes back to us, both ends are known by the same
    Call-ID. `caller_tag` is the From tag of its INVITE."""

    call_id: str
    role: Role
    caller_tag: str


class LoggedMessage(NamedTuple):
    """A message of a dialog. `again`: its bytes had been on the wire before."""

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
        self.over = False
        self._first: list[LoggedMessage] = []
        self._last: deque[LoggedMessage] = deque()

    def __iter__(self) -> Iterator[LoggedMessage]:
        yield from self._first
        yield from self._last

    def __len__(self) -> int:
        return len(self._first) + len(self._last)

    def add(self, kept: LoggedMessage, now_s: float) -> None:
        """Keep it; the first stay, of the others the last."""
        self.last_s = now_s
        self.began_ns = self.began_ns or kept.message.at_ns
        self._follow(kept.message)
        self.size += len(kept.message.raw)
        (self._first if len(self._first) < KEPT_FIRST else self._last).append(kept)
        while self._last and (len(self) > MAX_MESSAGES or self.size > MAX_DIALOG_BYTES):
            self.size -= len(self._last.popleft().message.raw)
            self.left_out += 1

    def _follow(self, message: SipMessage) -> None:
        if message.method == "BYE":
            self.over = True
        elif message.method == "INVITE" and not self.answered:
            self.answered = 200 <= message.status < 300
            self.over = message.status >= 300

    def is_over(self, now_s: float) -> bool:
        """Nobody will ask for it any more."""
        silent_s = now_s - self.last_s
        return silent_s > LINGER_S if self.over else not self.answered and silent_s > UNANSWERED_S


class SipLog:
    """Messages of live calls, and counters of all messages. On the event loop only; times are seconds of any clock
    that only goes forward."""

    def __init__(self) -> None:
        self.received: Counter[tuple[str, int]] = Counter()
        """By method and status class (0: the request itself)."""
        self.sent: Counter[tuple[str, int]] = Counter()
        self.retransmitted: Counter[bool] = Counter()
        """Messages that had been on the wire before; True: sent."""
        self.lost = 0
        """Messages that nobody took in time."""
        self.watchers: set[Watcher] = set()
        self.on_answered: Callable[[Role, float], None] | None = None
        """Our role in a call that is answered, and the seconds since its INVITE."""
        self._traces: dict[DialogKey, DialogTrace] = {}
        self._by_call_id: dict[str, list[DialogKey]] = {}
        self._size = 0
        self._swept_s = 0.0
        self._seen: tuple[set[int], set[int]] = (set(), set())
        """The hashes of younger and of older messages."""
        self._turned_s = 0.0
        self._legs: set[DialogKey] = set()
        self._logged = 0
        self._logged_since_s = 0.0

    def add(self, messages: Iterable[SipMessage], now_s: float) -> None:
        """What came since, oldest first."""
        for message in messages:
            again = self._remember(message, now_s)
            counts = self.sent if message.sent else self.received
            counts[message.method if message.method in METHODS else "other", message.status // 100] += 1
            self.retransmitted[message.sent] += again
            key = self._file(LoggedMessage(message, again), now_s)
            for watcher in tuple(self.watchers):
                watcher(message, key, again)
        if now_s - self._swept_s > SWEEP_S:
            self._sweep(now_s)

    def leg_created(self, call_id: str, caller_tag: str) -> None:
        """An INVITE has become a leg: what is answered to it is told elsewhere."""
        if len(self._legs) >= MAX_REMEMBERED:
            self._legs.clear()
        self._legs.add(DialogKey(call_id, "callee", caller_tag))

    def key_of(self, call_id: str, role: Role, caller_tag: str = "") -> DialogKey | None:
        """The dialog of this Call-ID in which we have this role; without a tag the first of them."""
        keys = (key for key in self._by_call_id.get(call_id, ()) if key.role == role)
        return next((key for key in keys if caller_tag in ("", key.caller_tag)), None)

    def dialog_trace(self, key: DialogKey) -> DialogTrace | None:
        """The messages of a dialog, while they are kept."""
        return self._traces.get(key)

    def forget(self, key: DialogKey) -> None:
        """Its messages have been stored."""
        if key in self._traces:
            self._forget(key)

    def _sweep(self, now_s: float) -> None:
        """Forget dialogs that are over for good, and messages that cannot come again."""
        self._swept_s = now_s
        if now_s - self._turned_s > LINGER_S:
            self._turn(now_s)
        for key in [key for key, trail in self._traces.items() if trail.is_over(now_s)]:
            self._forget(key)

    def _turn(self, now_s: float) -> None:
        self._turned_s = now_s
        self._seen = set(), self._seen[0]

    def _remember(self, message: SipMessage, now_s: float) -> bool:
        young, old = self._seen
        name = hash((message.sent, message.raw))
        if name in young or name in old:
            return True
        if len(young) >= MAX_REMEMBERED:
            self._turn(now_s)
        self._seen[0].add(name)
        return False

    def _file(self, kept: LoggedMessage, now_s: float) -> DialogKey | None:
        """Put a message to its dialog; None when it belongs to none, as a REGISTER."""
        key = self._find(kept.message)
        if key is None:
            return None
        trail = self._traces.pop(key, None) or self._open(key)
        self._traces[key] = trail  # the dialogs lie in the order of their last messages
        before, answered = trail.size, trail.answered
        trail.add(kept, now_s)
        self._size += trail.size - before
        if key.role == "callee" and key not in self._legs and _is_refusal(kept):
            self._log_refusal(kept.message, now_s)
        if trail.answered and not answered and self.on_answered:
            self.on_answered(key.role, (kept.message.at_ns - trail.began_ns) / 1e9)
        while self._size > MAX_TOTAL_BYTES and len(self._traces) > 1:
            self._forget(next(iter(self._traces)))
        return key

    def _log_refusal(self, message: SipMessage, now_s: float) -> None:
        """An INVITE was refused before it became a leg, by the guard or by PJSIP: nobody else tells."""
        if now_s - self._logged_since_s > LOG_WINDOW_S:
            self._logged, self._logged_since_s = 0, now_s
        self._logged += 1
        if self._logged <= MAX_LOGGED:
            why = header_value(message.raw.decode(errors="replace"), "Warning", "Warning")
            log.info(
                "sip.refused", code=message.status, source=without_port(message.peer), why=printable(why) or None,
                sip_call_id=message.call_id,
            )  # fmt: skip

    def _find(self, message: SipMessage) -> DialogKey | None:
        """Who sends a request is its originator; its From tag tells whether that is the call's caller or callee."""
        ours = message.sent == (message.status == 0)
        as_caller: Role = "caller" if ours else "callee"
        as_callee: Role = "callee" if ours else "caller"
        key = DialogKey(message.call_id, as_caller, message.from_tag)
        if key in self._traces:
            return key
        other = DialogKey(message.call_id, as_callee, message.to_tag)
        if other in self._traces:
            return other
        return key if message.method == "INVITE" and message.status == 0 else None

    def _open(self, key: DialogKey) -> DialogTrace:
        self._by_call_id.setdefault(key.call_id, []).append(key)
        return DialogTrace()

    def _forget(self, key: DialogKey) -> None:
        self._size -= self._traces.pop(key).size
        self._legs.discard(key)
        keys = self._by_call_id[key.call_id]
        keys.remove(key)
        if not keys:
            del self._by_call_id[key.call_id]


def _is_refusal(kept: LoggedMessage) -> bool:
    """A refusal of ours to an INVITE, sent for the first time. 503 is told by the figures: we are full, or flooded."""
    message = kept.message
    refused = message.status >= 400 and message.status != 503
    return refused and message.sent and not kept.retransmission and message.method == "INVITE"


class SipTap:
    """Brings messages from the native ring to the log. `start` on the event loop, when PJSIP has installed the tap."""

    def __init__(self, sip_log: SipLog) -> None:
        self._log = sip_log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptor = -1
        self._later: asyncio.TimerHandle | asyncio.Handle | None = None

    def start(self, descriptor: int) -> None:
        """Take messages whenever the descriptor tells that there are some."""
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._loop.add_reader(descriptor, self._woken)
        self.take()  # of what came before, nothing would tell

    def stop(self) -> None:
        """Take what is left and no more. Before the tap is removed. Idempotent."""
        if self._loop is None:
            return
        while self.take():
            pass
        self._loop.remove_reader(self._descriptor)
        if self._later is not None:
            self._later.cancel()
        self._loop = None

    def take(self) -> bool:
        """Take a part of what is there; False when there is no more."""
        rows, lost = _native.tap_take()
        if lost > self._log.lost:
            log.warning("sip.messages_not_seen", count=lost - self._log.lost)
            self._log.lost = lost
        if self._loop is not None:
            self._log.add(map(_message, rows), self._loop.time())
        return bool(rows)

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):  # somebody has taken them since
            os.eventfd_read(self._descriptor)
        if self._later is None and self._loop is not None:
            self._later = self._loop.call_later(GATHER_S, self._gathered)

    def _gathered(self) -> None:
        self._later = None
        if self.take() and self._loop is not None:  # others have their turn between two parts
            self._later = self._loop.call_soon(self._gathered)


def _message(row: _native.TapRow) -> SipMessage:
    at_ns, sent, transport, ours, peer, call_id, from_tag, to_tag, method, cseq, status, with_sdp, raw = row
    names = _plain(call_id), _plain(from_tag), _plain(to_tag), _plain(method)
    return SipMessage(at_ns, sent, transport.lower(), ours, peer, *names, cseq, status, with_sdp, raw)


def _plain(text: str) -> str:
    """As every Call-ID is written down (`headers.printable`); nearly all are that already."""
    return text if text.isascii() and text.isprintable() and len(text) <= 128 else printable(text)
