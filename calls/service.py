"""All calls of this process: inbound admission, the calls that live now, and how they are brought to an end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import structlog

from calls import metrics
from calls.admission import RETRY_AFTER_S, Admitted, Ceilings, Refused, SourceNames, find_target
from calls.live import Equipment, LiveCall
from config.errors import Unavailable
from sipcore.leg import Leg
from storage import calls
from storage.calls import EndedReason
from storage.database import Database

ANONYMOUS = "anonymous"
"""The customer's number when the caller does not tell it (RFC 3323)."""

log = structlog.get_logger()


def _only_address(source: str) -> tuple[str]:
    return (source,)


class CallService:
    """`incoming` takes a new inbound leg; the endpoint calls it on the event loop. `names_of` gives the names that a
    source address has in the database: itself and the registrars' host names that resolve to it."""

    def __init__(
        self,
        database: Database,
        equipment: Equipment,
        ceilings: Ceilings,
        names_of: SourceNames = _only_address,
    ) -> None:
        self._database = database
        self._equipment = equipment
        self._ceilings = ceilings
        self._names_of = names_of
        self._draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._live: dict[str, tuple[LiveCall, asyncio.Task[None]]] = {}
        self._places: Counter[str] = Counter()

    @property
    def live_calls(self) -> int:
        """Calls that have a place: those that ring and those that talk."""
        return self._places.total()

    @property
    def draining(self) -> bool:
        """No new calls are taken."""
        return self._draining

    def live(self) -> list[LiveCall]:
        """The calls that live now."""
        return [call for call, _ in self._live.values()]

    async def recover(self) -> int:
        """At start-up, before calls are taken: close the calls that a dead process left open. Returns how many."""
        closed = await self._equipment.after_call.recover(self._equipment.data_dir)
        if closed:
            log.warning("calls.recovered", closed=closed)
        return closed

    def incoming(self, leg: Leg) -> None:
        """Take a new inbound leg, or refuse it; returns at once."""
        task = asyncio.get_running_loop().create_task(self._incoming(leg))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def hangup(self, call_id: str) -> bool:
        """End a live call as `api_hangup` and wait until its end is stored. False when it is not live here."""
        if call_id not in self._live:
            return False
        call, task = self._live[call_id]
        call.end("api_hangup")
        await asyncio.wait((task,))
        return True

    async def drain(self, timeout_s: float) -> None:
        """Take no new calls and wait for those that live; after `timeout_s` they end as `server_shutdown`. Returns when
        the end of every call is stored."""
        self._draining = True
        if self._tasks:
            log.info("calls.draining", live=self.live_calls, timeout_s=timeout_s)
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        self.end_all("server_shutdown")
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def end_all(self, reason: EndedReason = "server_shutdown") -> None:
        """End every call now, and take no new ones."""
        self._draining = True
        for call, _ in list(self._live.values()):
            call.end(reason)

    async def _incoming(self, leg: Leg) -> None:
        """A leg's whole life. Nothing that goes wrong with it reaches another one."""
        facts = leg.facts
        event = log.bind(source=facts.source, dialled=facts.request_user, sip_call_id=facts.sip_call_id)
        try:
            await self._admit_and_serve(leg)
        except Refused as refusal:
            event.info("call.refused", code=refusal.code, why=refusal.message)
            await self._refuse(leg, refusal.code, refusal.retry_after_s)
        except Unavailable as trouble:
            event.error("call.refused", code=503, why=str(trouble))
            await self._refuse(leg, 503, trouble.retry_after_s)
        except Exception as error:  # noqa: BLE001 - it ends this leg alone
            event.error("call.refused", code=500, why=repr(error), exc_info=error)
            await self._refuse(leg, 500, None)

    async def _refuse(self, leg: Leg, code: int, retry_after_s: int | None) -> None:
        metrics.REFUSED_CALLS.labels(sip_status=code).inc()
        if leg.ended.done():
            return
        try:
            await leg.reject(code, retry_after_s)
        except Exception as error:  # noqa: BLE001 - the leg may have ended meanwhile
            log.warning("call.refusal_failed", sip_call_id=leg.facts.sip_call_id, error=repr(error))

    async def _admit_and_serve(self, leg: Leg) -> None:
        facts, names = leg.facts, self._names_of(leg.facts.source)
        admitted = await self._database.read(lambda conn: find_target(conn, facts, names, self._ceilings))
        with self._place(admitted):
            call = await self._create(leg, admitted)
            await self._serve(call)

    @contextmanager
    def _place(self, admitted: Admitted) -> Iterator[None]:
        """One of the places that the ceilings leave. `Refused`: 486 when the organization's are taken, 503 when the
        process's are, or when it drains."""
        organization = admitted.number.organization_id
        if self._draining:
            raise Refused(503, "the server is draining", RETRY_AFTER_S)
        if self._places[organization] >= admitted.max_calls:
            raise Refused(486, "the organization has too many calls")
        if self.live_calls >= self._ceilings.process:
            raise Refused(503, "the server is full", RETRY_AFTER_S)
        self._places[organization] += 1
        metrics.LIVE_CALLS.inc()
        try:
            yield
        finally:
            self._places[organization] -= 1
            metrics.LIVE_CALLS.dec()

    async def _create(self, leg: Leg, admitted: Admitted) -> LiveCall:
        facts = leg.facts
        call = await self._database.write(
            partial(
                calls.create_inbound,
                organization_id=admitted.number.organization_id,
                agent_id=admitted.agent.id,
                phone_number_id=admitted.number.id,
                provider=admitted.number.provider,
                call_sid=facts.sip_call_id,
                customer_number=facts.sender.user or ANONYMOUS,
            )
        )
        log.info(
            "call.incoming",
            call_id=call.id,
            source=facts.source,
            number=admitted.number.number,
            customer=call.customer_number,
            agent=admitted.agent.id,
        )
        return LiveCall(call, admitted.agent, admitted.number, leg, self._equipment)

    async def _serve(self, live: LiveCall) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._live[live.call.id] = (live, task)
        if self._draining:
            live.end("server_shutdown")
        try:
            await live.run()
        except Exception as error:  # noqa: BLE001 - the end could not be stored: that concerns this call alone
            log.error("call.end_lost", call_id=live.call.id, error=repr(error), remedy="closed at the next start")
        finally:
            del self._live[live.call.id]
