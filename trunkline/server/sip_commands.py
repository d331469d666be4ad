"""What the control socket tells of SIP: live messages, trunks and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from calls.call_record import media_quality
from calls.call_record.sip_trace import CallSipTraces, TracedCall, sip_entry
from calls.service import CallService
from calls.session.snapshot import CallSnapshot
from config.clock import utc_now
from config.errors import Invalid, NotFound
from sipcore.messages.headers import without_port
from sipcore.trace.sip_log import DialogKey, LoggedMessage, SipLog
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
    """What is known at the moment. `names_of` gives the names that an address has among the sources of trunks."""

    database: Database
    sip_log: SipLog
    see: Callable[[], None]
    sip_traces: CallSipTraces
    service: CallService
    names_of: Callable[[str], Collection[str]]
    status_of: Callable[[PhoneNumber], TrunkStatus]


class SipCommands:
    """Handlers of the `trunkline sip` commands."""

    def __init__(self, context: SipControlContext) -> None:
        self._context = context

    def handlers(self) -> Mapping[str, CommandHandler]:
        """The handlers by command."""
        return {"sip.trace": self.trace, "sip.status": self.status, "sip.calls": self.calls}

    async def trace(self, request: Mapping[str, Any], connection: ControlConnection) -> None:
        """Every message that is wanted, from now on; of one call also those that were before, until it is over."""
        match request:
            case {"call": str(call_id)}:
                await self._trace_call(call_id, connection)
            case {"trunk": str(number)}:
                with self._watching(connection, await self._trunk_filter(number)):
                    await _for_ever()
            case {"all": True}:
                with self._watching(connection, lambda message, key, followed: True):
                    await _for_ever()
            case _:
                raise Invalid([], "a trace is of a call, of a trunk, or of all")

    async def status(self, request: Mapping[str, Any], connection: ControlConnection) -> None:
        """Every trunk: its number, how it stands, and its live calls."""
        numbers, names = await self._context.database.read(_trunks)
        busy = [call.call.phone_number_id for call in self._context.service.active_calls()]
        for number in numbers:
            status = self._context.status_of(number)
            connection.send(
                {
                    "number": number.number,
                    "organization": names.get(number.organization_id),
                    "mode": number.sip_mode,
                    "trunk": number.source,
                    "state": status.state,
                    "detail": status.detail,
                    "calls": busy.count(number.id),
                }
            )

    async def calls(self, request: Mapping[str, Any], connection: ControlConnection) -> None:
        """Every live call."""
        numbers, _ = await self._context.database.read(_trunks)
        by_id = {number.id: number.number for number in numbers}
        for active in self._context.service.active_calls():
            connection.send(_call(active.snapshot(), by_id))

    async def _trace_call(self, call_id: str, connection: ControlConnection) -> None:
        self._context.see()
        keys = self._dialogs_of(call_id)
        if not keys:
            await self._send_stored(call_id, connection)
            return
        with self._watching(connection, lambda message, key, followed: key in keys):
            for key in keys:
                for kept in self._context.sip_log.dialog_trace(key) or ():
                    connection.send(_shown(kept, key, self._context.sip_traces.call_of(key)))
            if self._context.sip_traces.dialog_key(call_id) is None:
                await _for_ever()
            await self._context.sip_traces.wait_stored(call_id)

    def _dialogs_of(self, call_id: str) -> Collection[DialogKey]:
        """Of a call of ours, or of all that have this SIP Call-ID."""
        key = self._context.sip_traces.dialog_key(call_id)
        if key is not None:
            return {key}
        sip_log = self._context.sip_log
        found = sip_log.key_of(call_id, "caller"), sip_log.key_of(call_id, "callee")
        return {each for each in found if each is not None}

    async def _send_stored(self, call_id: str, connection: ControlConnection) -> None:
        call, sip = await self._context.database.read(
            lambda conn: (calls.get_by_id(conn, call_id), sip_traces.get(conn, call_id))
        )
        if call is None:
            raise NotFound(f"there is no call {call_id}: see `trunkline sip calls`")
        for message in sip.messages if sip else ():
            connection.send(_public(message, call.call_sid, call_id))

    async def _trunk_filter(self, number: str) -> MessageFilter:
        """Calls of the number, and what comes from its addresses or goes there outside of other numbers' calls."""
        context = self._context
        stored = [each for each in (await context.database.read(_trunks))[0] if each.number == number]
        if not stored:
            raise NotFound(f"there is no trunk with the number {number}: see `trunkline sip status`")
        ids = {each.id for each in stored}
        sources = {source for each in stored for source in phone_numbers.sources_of(each)}

        def is_shown(message: SipMessage, key: DialogKey | None, followed: TracedCall | None) -> bool:
            if followed is not None:
                return followed.phone_number_id in ids
            return not sources.isdisjoint(context.names_of(without_port(message.peer)))

        return is_shown

    @contextmanager
    def _watching(self, connection: ControlConnection, is_shown: MessageFilter) -> Iterator[None]:
        """What is wanted is told until the block ends."""

        def watch(message: SipMessage, key: DialogKey | None, again: bool) -> None:
            followed = None if key is None else self._context.sip_traces.call_of(key)
            if is_shown(message, key, followed):
                connection.send(_shown(LoggedMessage(message, again), key, followed))

        self._context.sip_log.watchers.add(watch)
        try:
            yield
        finally:
            self._context.sip_log.watchers.discard(watch)


async def _for_ever() -> None:
    """Until cancelled."""
    await asyncio.Event().wait()


def _trunks(conn: sa.Connection) -> tuple[list[PhoneNumber], dict[str, str]]:
    """All numbers with a trunk, and the names of organizations."""
    return phone_numbers.trunks(conn), {each.id: each.name for each in organizations.all_of(conn)}


def _shown(kept: LoggedMessage, key: DialogKey | None, followed: TracedCall | None) -> dict[str, Any]:
    call_id = followed.call_id if followed else None
    return _public(sip_entry(kept, kept.message.at_ns), kept.message.call_id, call_id)


def _public(message: StoredSipMessage, sip_call_id: str | None, call_id: str | None) -> dict[str, Any]:
    """With the names of the API."""
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


def _call(snapshot: CallSnapshot, numbers: Mapping[str, str]) -> dict[str, Any]:
    call, media = snapshot.call, snapshot.leg.media if snapshot.leg else None
    return {
        "id": call.id,
        "direction": call.direction,
        "status": snapshot.status,
        "number": numbers.get(call.phone_number_id or ""),
        "customer": call.customer_number,
        "seconds": int((utc_now() - (snapshot.answered_at or call.created_at)).total_seconds()),
        "codec": media.codec if media else None,
        "onHold": bool(snapshot.leg and snapshot.leg.on_hold),
        "sipCallId": call.call_sid,
        "mediaQuality": _quality(snapshot),
    }


def _quality(snapshot: CallSnapshot) -> dict[str, Any] | None:
    """As in the API; None while there is no sound."""
    try:
        return media_quality.to_json(snapshot.leg.quality()) if snapshot.leg else None
    except KeyError:
        return None
