"""The control socket's handlers for `trunkline sip`: live SIP messages, trunks and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from calls.call_record import media_quality
from calls.call_record.sip_trace import CallSipTraces, TracedCall, stored_message
from calls.service import CallService
from calls.session.call_snapshot import CallSnapshot
from config.clock import utc_now
from config.errors import Invalid, NotFound
from sipcore.messages.headers import without_port
from sipcore.trace.sip_capture import CapturedMessage, DialogKey, SipCapture
from sipcore.trace.sip_message import SipMessage
from sipcore.trunks.trunk import TrunkStatus
from storage.accounts import organizations
from storage.calls import calls, sip_traces
from storage.calls.sip_traces import StoredSipMessage
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from trunkline.server.control_socket import CommandHandler, ControlConnection

MessageFilter = Callable[[SipMessage, DialogKey | None, TracedCall | None], bool]


@dataclass(frozen=True)
class SipControlContext:
    """The parts of a running server that the handlers read. `update_sip_capture` moves new messages into the SIP
    capture, `aliases_of` returns the names of an address among the sources of trunks."""

    database: Database
    sip_capture: SipCapture
    update_sip_capture: Callable[[], None]
    sip_traces: CallSipTraces
    service: CallService
    aliases_of: Callable[[str], Collection[str]]
    trunk_status: Callable[[PhoneNumber], TrunkStatus]


class SipCommands:
    """Handlers of the `trunkline sip` commands."""

    def __init__(self, context: SipControlContext) -> None:
        self._context = context

    def handlers(self) -> Mapping[str, CommandHandler]:
        """The handlers by their request's `command`."""
        return {"sip.trace": self.trace, "sip.status": self.status, "sip.calls": self.calls}

    async def trace(self, request: Mapping[str, Any], connection: ControlConnection) -> None:
        """Send the SIP messages of a call, of a trunk or of all known sources, as they are captured. A call's trace
        begins with its earlier messages and ends with the call."""
        match request:
            case {"call": str(call_id)}:
                await self._trace_call(call_id, connection)
            case {"trunk": str(number)}:
                with self._sending(connection, await self._trunk_filter(number)):
                    await _wait_forever()
            case {"all": True}:
                with self._sending(connection, lambda message, key, call: True):
                    await _wait_forever()
            case _:
                raise Invalid([], "a trace is of a call, of a trunk, or of all")

    async def status(self, request: Mapping[str, Any], connection: ControlConnection) -> None:
        """Send the state and the number of live calls of every trunk."""
        numbers, names = await self._context.database.read(_read_trunks)
        numbers_of_calls = [active.call.phone_number_id for active in self._context.service.active_calls()]
        for number in numbers:
            status = self._context.trunk_status(number)
            connection.send(
                {
                    "id": number.id,
                    "number": number.number,
                    "organization": names.get(number.organization_id),
                    "mode": phone_numbers.effective_trunk(number).sip_mode,
                    "trunk": number.source,
                    "state": status.state,
                    "detail": status.detail,
                    "calls": numbers_of_calls.count(number.id),
                }
            )

    async def calls(self, request: Mapping[str, Any], connection: ControlConnection) -> None:
        """Send every live call."""
        numbers, _ = await self._context.database.read(_read_trunks)
        by_id = {number.id: number.number for number in numbers}
        for active in self._context.service.active_calls():
            connection.send(_call_json(active.snapshot(), by_id))

    async def _trace_call(self, call_id: str, connection: ControlConnection) -> None:
        self._context.update_sip_capture()
        keys = self._dialog_keys(call_id)
        if not keys:
            await self._send_stored_trace(call_id, connection)
            return
        with self._sending(
            connection, lambda message, key, call: key in keys or (call is not None and call.call_id == call_id)
        ):
            for key in keys:
                for captured in self._context.sip_capture.dialog_trace(key) or ():
                    connection.send(_captured_json(captured, self._context.sip_traces.call_of(key)))
            if not self._context.sip_traces.is_traced(call_id):
                await _wait_forever()
            await self._context.sip_traces.wait_stored(call_id)

    def _dialog_keys(self, call_id: str) -> Collection[DialogKey]:
        """The dialogs of the call with this id, or all dialogs with this SIP Call-ID."""
        if keys := self._context.sip_traces.dialog_keys(call_id):
            return keys
        sip_capture = self._context.sip_capture
        return [*sip_capture.find_dialogs(call_id, "caller"), *sip_capture.find_dialogs(call_id, "callee")]

    async def _send_stored_trace(self, call_id: str, connection: ControlConnection) -> None:
        call, sip = await self._context.database.read(
            lambda conn: (calls.get_by_id(conn, call_id), sip_traces.get(conn, call_id))
        )
        if call is None:
            raise NotFound(f"there is no call {call_id}: see `trunkline sip calls`")
        for message in sip.messages if sip else ():
            connection.send(_message_json(message, call.call_sid, call_id))

    async def _trunk_filter(self, number: str) -> MessageFilter:
        """Passes the messages of the number's calls, and messages outside of calls from and to its trunk's sources."""
        context = self._context
        stored = [each for each in (await context.database.read(_read_trunks))[0] if each.number == number]
        if not stored:
            raise NotFound(f"there is no trunk with the number {number}: see `trunkline sip status`")
        ids = {each.id for each in stored}
        sources = {source for each in stored for source in phone_numbers.sources_of(each)}

        def passes(message: SipMessage, key: DialogKey | None, call: TracedCall | None) -> bool:
            if call is not None:
                return call.phone_number_id in ids
            return not sources.isdisjoint(context.aliases_of(without_port(message.peer)))

        return passes

    @contextmanager
    def _sending(self, connection: ControlConnection, passes: MessageFilter) -> Iterator[None]:
        """Send the messages that pass the filter, as they are captured, until the block ends."""

        def watch(message: SipMessage, key: DialogKey | None, again: bool) -> None:
            call = None if key is None else self._context.sip_traces.call_of(key)
            if passes(message, key, call):
                connection.send(_captured_json(CapturedMessage(message, again), call))

        self._context.sip_capture.watchers.add(watch)
        try:
            yield
        finally:
            self._context.sip_capture.watchers.discard(watch)


async def _wait_forever() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()


def _read_trunks(conn: sa.Connection) -> tuple[list[PhoneNumber], dict[str, str]]:
    """Returns all numbers with a trunk, and the names of organizations by id."""
    return phone_numbers.numbers_with_trunk(conn), {each.id: each.name for each in organizations.all_of(conn)}


def _captured_json(captured: CapturedMessage, call: TracedCall | None) -> dict[str, Any]:
    call_id = call.call_id if call else None
    return _message_json(stored_message(captured, captured.message.at_ns), captured.message.call_id, call_id)


def _message_json(message: StoredSipMessage, sip_call_id: str | None, call_id: str | None) -> dict[str, Any]:
    """A message with the field names of the API."""
    return {
        "at": message["at"],
        "callId": call_id,
        "sipCallId": sip_call_id,
        "direction": message["direction"],
        "transport": message["transport"],
        "from": message["source"],
        "to": message["target"],
        "summary": message["summary"],
        "cseq": message["cseq"],
        "sdp": message["sdp"],
        "retransmission": message["again"],
        "text": message["text"],
    }


def _call_json(snapshot: CallSnapshot, numbers: Mapping[str, str]) -> dict[str, Any]:
    """A live call. `numbers`: phone numbers by id."""
    call, media = snapshot.call, snapshot.leg.media if snapshot.leg else None
    return {
        "id": call.id,
        "direction": call.direction,
        "status": snapshot.status,
        "number": numbers.get(call.phone_number_id or ""),
        "customer": call.customer_number,
        "seconds": int((utc_now() - (snapshot.answered_at or call.created_at)).total_seconds()),
        "codec": media.codec if media else None,
        "onHold": snapshot.held or bool(snapshot.leg and snapshot.leg.on_hold),
        "sipCallId": call.call_sid,
        "mediaQuality": _quality_json(snapshot),
    }


def _quality_json(snapshot: CallSnapshot) -> dict[str, Any] | None:
    """The media quality with the field names of the API; None while there is no audio."""
    try:
        return media_quality.to_json(snapshot.leg.quality()) if snapshot.leg else None
    except KeyError:
        return None
