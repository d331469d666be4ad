"""SIP traces of calls: assigns messages to calls, and stores them shortly after the call's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Final

import structlog

from config.clock import iso
from sipcore.dialogs.leg import InviteFacts
from sipcore.trace.sip_capture import CapturedMessage, DialogKey, SipCapture
from storage.calls import sip_traces
from storage.calls.sip_traces import SipTrace, StoredSipMessage
from storage.database.database import Database
from storage.database.errors import StorageUnavailable

STORE_DELAY_S: Final = 1.0
"""From a call's end until its messages are stored: the response to a BYE and a retransmitted BYE come in this time."""
DISK_FULL_RETRY_S: Final = 10.0
"""The wait after the disk was full."""
MAX_WAITING: Final = 1000
"""Calls whose messages wait for disk space."""
BATCH_SIZE: Final = 8
"""Calls whose messages are stored in one transaction."""

DialogMessages = tuple[Sequence[CapturedMessage], int]
"""A call's messages, and the number of omitted ones."""

log = structlog.get_logger()


@dataclass(frozen=True)
class TracedCall:
    """A call with a leg, and its number."""

    call_id: str
    phone_number_id: str | None


class CallSipTraces:
    """The traces of all calls. For the event loop only. `update_capture` updates the SIP capture."""

    def __init__(self, database: Database, sip_capture: SipCapture, update_capture: Callable[[], None]) -> None:
        self._database = database
        self._capture = sip_capture
        self._update_capture = update_capture
        self._facts: dict[str, InviteFacts] = {}
        self._traced: dict[DialogKey, TracedCall] = {}
        self._waiters: dict[str, asyncio.Future[None]] = {}
        self._ended: list[str] = []
        self._store_timer: asyncio.TimerHandle | None = None
        self._storing: set[asyncio.Task[None]] = set()
        self._closing = False

    def start(self, call: TracedCall, facts: InviteFacts) -> None:
        """Start to trace a call that has a leg."""
        self._facts[call.call_id] = facts
        self._traced[_trace_key(facts)] = call

    def dialog_keys(self, call_id: str) -> list[DialogKey]:
        """Returns the dialogs of a call that is active or has just ended: of an outbound call one for each target that
        the INVITE was sent to."""
        facts = self._facts.get(call_id)
        return [] if facts is None else self._capture.find_dialogs(*_trace_key(facts))

    def is_traced(self, call_id: str) -> bool:
        """True for a call that is active or has just ended."""
        return call_id in self._facts

    async def wait_stored(self, call_id: str) -> None:
        """Wait until the call's messages are stored; returns at once if it is not traced."""
        if call_id in self._facts:
            waiter = self._waiters.setdefault(call_id, asyncio.get_running_loop().create_future())
            await asyncio.shield(waiter)

    def call_of(self, key: DialogKey) -> TracedCall | None:
        """Returns the call of a dialog while it is traced, else None."""
        tag = "" if key.role == "caller" else key.caller_tag
        return self._traced.get(key._replace(caller_tag=tag))

    async def messages(self, call_id: str) -> SipTrace | None:
        """Returns the messages so far of a call that is active or has just ended; None if it is not traced."""
        self._update_capture()
        messages = self._messages_of(call_id)
        return None if messages is None else await asyncio.to_thread(_to_sip_trace, *messages)

    def on_call_ended(self, call_id: str) -> None:
        """Store the call's messages after `STORE_DELAY_S`, because its end is stored."""
        if call_id not in self._facts:
            return
        self._ended.append(call_id)
        if self._store_timer is None:
            self._store_timer = asyncio.get_running_loop().call_later(
                STORE_DELAY_S, self._store_ended, context=Context()
            )

    async def close(self) -> None:
        """Store the messages of all ended calls now."""
        self._closing = True
        if self._store_timer is not None:
            self._store_timer.cancel()
            self._store_ended()
        if self._storing:
            await asyncio.wait(self._storing)

    def _messages_of(self, call_id: str) -> DialogMessages | None:
        traces = [trace for key in self.dialog_keys(call_id) if (trace := self._capture.dialog_trace(key)) is not None]
        if not traces:
            return None
        messages = sorted(chain.from_iterable(traces), key=lambda each: each.message.at_ns)
        return messages, sum(trace.left_out for trace in traces)

    def _store_ended(self) -> None:
        """Store the messages of all ended calls, in batches, because new calls wait for the same thread."""
        self._store_timer = None
        ended, self._ended = self._ended, []
        self._update_capture()
        messages_by_call = {
            call_id: messages for call_id in ended if (messages := self._messages_of(call_id)) is not None
        }
        task = asyncio.get_running_loop().create_task(self._store_all(messages_by_call, ended))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def _store_all(self, messages_by_call: Mapping[str, DialogMessages], ended: Sequence[str]) -> None:
        for first in range(0, len(ended), BATCH_SIZE):
            batch = ended[first : first + BATCH_SIZE]
            await self._store(
                {call_id: messages_by_call[call_id] for call_id in batch if call_id in messages_by_call}, batch
            )

    async def _store(self, messages_by_call: Mapping[str, DialogMessages], ended: Sequence[str]) -> None:
        """Store a batch. On failure the messages of these calls are lost; while the disk is full they wait for
        space."""
        try:
            traces = await asyncio.to_thread(
                lambda: {call_id: _to_sip_trace(*messages) for call_id, messages in messages_by_call.items()}
            )
            if traces:
                await self._database.write(
                    lambda conn: sip_traces.store(conn, traces), lock="sip traces", deferrable=True
                )
        except StorageUnavailable as error:
            if error.is_outage and not self._closing and len(self._ended) < MAX_WAITING:
                self._store_later(ended)
                return
            log.warning(
                "calls.sip_not_stored", calls=len(messages_by_call), cause=error.cause, lost=sorted(messages_by_call)
            )
        except Exception as error:
            log.error("calls.sip_not_stored", calls=len(messages_by_call), error=repr(error), exc_info=error)
        for call_id in ended:
            self._stop_tracing(call_id)

    def _store_later(self, ended: Sequence[str]) -> None:
        """Store the messages of these calls later, when the disk may have space."""
        self._ended += ended
        if self._store_timer is None:
            self._store_timer = asyncio.get_running_loop().call_later(
                DISK_FULL_RETRY_S, self._store_ended, context=Context()
            )

    def _stop_tracing(self, call_id: str) -> None:
        for key in self.dialog_keys(call_id):
            self._capture.remove_dialog(key)
        facts = self._facts.pop(call_id)
        self._traced.pop(_trace_key(facts), None)
        if (waiter := self._waiters.pop(call_id, None)) is not None:
            waiter.set_result(None)


def _trace_key(facts: InviteFacts) -> DialogKey:
    """Returns the key of a traced call; of an outbound call without its tag, which is not known yet."""
    if facts.direction == "outbound":
        return DialogKey(facts.sip_call_id, "caller", "")
    return DialogKey(facts.sip_call_id, "callee", facts.from_tag)


def _to_sip_trace(captured: Sequence[CapturedMessage], left_out: int) -> SipTrace:
    first_ns = captured[0].message.at_ns if captured else 0
    return SipTrace([stored_message(each, first_ns) for each in captured], left_out)


def stored_message(captured: CapturedMessage, first_ns: int) -> StoredSipMessage:
    """Returns a message as it is stored and shown."""
    message, retransmitted = captured
    addresses = (message.ours, message.peer) if message.sent else (message.peer, message.ours)
    return {
        "at": iso(datetime.fromtimestamp(message.at_ns / 1e9, UTC)),
        "offset_ms": (message.at_ns - first_ns) // 1_000_000,
        "direction": "sent" if message.sent else "received",
        "transport": message.transport,
        "source": addresses[0],
        "target": addresses[1],
        "summary": message.summary,
        "cseq": message.cseq,
        "sdp": message.with_sdp,
        "again": retransmitted,
        "text": message.text,
    }
