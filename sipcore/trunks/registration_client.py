"""Does what `sipcore.trunks.registration` decides, for each trunk that registers: a timer, a turn, a REGISTER, its
outcome."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, cast
from uuid import uuid4

import structlog

from config.clock import utc_now
from sipcore import _native
from sipcore.messages.headers import printable
from sipcore.pjsip_thread import PjsipThread
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.security.digest import Credentials
from sipcore.trunks.registration import RegisterOutcome, RegisterResult, Registration, why_failed
from sipcore.trunks.trunk import Trunk, TrunkStatus
from sipcore.trunks.trunk_uris import address_of_record, registrar_uri, route_set

REGISTERS_PER_SECOND: Final = 50
"""REGISTERs that we send at most: a thousand trunks do not start, or come back, at once."""
KEEP_ALIVE_S: Final = 25.0
"""NATs forget a way for UDP after 30 s and more (RFC 4787 4.3 asks for 120)."""
_CSEQ_STEP: Final = 4
"""A REGISTER and the answers to its challenges."""
_NO_CREDENTIALS: Final = Credentials("", "")

log = structlog.get_logger(__name__)


@dataclass
class _RegisterSeries:
    """The REGISTERs of one contact with one registrar, which tells the last one by their order (RFC 3261 10.3): a trunk
    that is changed goes on in the series of the one before."""

    call_id: str = field(default_factory=lambda: str(uuid4()))
    cseq: int = 1


@dataclass(eq=False)
class ActiveRegistration:
    """A registration and what its requests need. `account` is PJSUA's number."""

    trunk: Trunk
    account_id: int
    machine: Registration
    series: _RegisterSeries
    ended: asyncio.Future[None]
    """Done when it has ended and the registrar has been told, or could not be."""
    contact: str = ""
    """What was sent last; the owner's thread knows."""
    target: SipTarget | None = None
    """Where it is registered, or where it is tried."""
    tried: set[SipTarget] = field(default_factory=set)
    token: int = -1
    timer: asyncio.TimerHandle | None = None
    keep_alive_timer: asyncio.TimerHandle | None = None
    reported: TrunkStatus | None = None


class RegistrationClient:
    """All of an endpoint's. `locate`: the addresses of a place by preference; `on_status` is called when a status has
    changed in more than its time. Use it on the event loop."""

    def __init__(
        self,
        owner: PjsipThread,
        locate: Callable[[SipHostPort], Sequence[SipTarget]],
        on_status: Callable[[str, TrunkStatus], None],
    ) -> None:
        self._owner = owner
        self._locate = locate
        self._on_status = on_status
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count(1)
        self._awaited: dict[int, ActiveRegistration] = {}
        self._series: dict[Hashable, _RegisterSeries] = {}
        self._all: set[ActiveRegistration] = set()
        self._next_turn_s = 0.0

    def install_here(self) -> None:
        """On the owner's thread, once PJSUA is initialized."""
        _native.register_install(self._on_native_result, self._on_native_connection_lost)

    def register(self, trunk: Trunk, account: int) -> ActiveRegistration:
        """Register, from an account that PJSUA has."""
        series = self._series.setdefault(_contact_of(trunk), _RegisterSeries())
        machine = Registration(self._loop.time(), random.random)
        one = ActiveRegistration(trunk, account, machine, series, self._loop.create_future())
        self._all.add(one)
        self._schedule(one)
        return one

    def unregister(self, one: ActiveRegistration) -> asyncio.Future[None]:
        """Unregister; the future is done when that is over, in `GIVE_UP_S` at most."""
        if not one.machine.unregistering:
            self._awaited.pop(one.token, None)
            one.machine.unregister(self._loop.time())
            self._apply(one)
        return one.ended

    def begin_unregister_all(self) -> list[asyncio.Future[None]]:
        """Unregister all."""
        return [self.unregister(one) for one in list(self._all)]

    async def unregister_all(self, timeout_s: float) -> None:
        """Unregister all, and wait until the registrars know, at most `timeout_s`."""
        if leaving := self.begin_unregister_all():
            await asyncio.wait(leaving, timeout=timeout_s)

    def close(self) -> None:
        """Send nothing more."""
        for one in self._all:
            _cancel(one.timer, one.keep_alive_timer)
        self._all.clear()

    def on_hosts_changed(self) -> None:
        """Host names have other addresses than before."""
        now_s = self._loop.time()
        for one in list(self._all):
            if self._targets(one) and one.target not in self._targets(one):
                one.machine.on_host_resolved(now_s)
                self._apply(one)

    # ---- PJSIP's threads ----

    def _on_native_result(
        self, token: int, end: str, code: int, reason: str, source: str, expires_s: int, retry_s: int, least_s: int
    ) -> None:
        said = [None if seconds < 0 else seconds for seconds in (retry_s, least_s)]
        self._post(
            self._on_result,
            token,
            RegisterResult(cast(RegisterOutcome, end), code, printable(reason), source, expires_s, *said),
        )

    def _on_native_connection_lost(self, account: int) -> None:
        self._post(self._on_connection_lost, account)

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    # ---- the event loop ----

    def _apply(self, one: ActiveRegistration) -> None:
        """Its machine has moved: tell, and set the timer."""
        status = one.machine.status
        if (
            one.reported is None
            or status.state != one.reported.state
            or (status.state == "failed" and status != one.reported)
        ):
            one.reported = status
            if status.state == "registered" and one.keep_alive_timer is None:
                one.keep_alive_timer = self._loop.call_later(KEEP_ALIVE_S, self._keep_alive, one)
            self._on_status(one.trunk.key, status)
        if one.machine.ended:
            self._forget(one)
        else:
            self._schedule(one)

    def _forget(self, one: ActiveRegistration) -> None:
        _cancel(one.timer, one.keep_alive_timer)
        self._all.discard(one)
        if all(other.series is not one.series for other in self._all):
            self._series.pop(_contact_of(one.trunk), None)
        if not one.ended.done():
            one.ended.set_result(None)

    def _schedule(self, one: ActiveRegistration) -> None:
        _cancel(one.timer)
        machine = one.machine
        if machine.due_s is not None:
            one.timer = self._loop.call_at(machine.due_s, self._send_paced, one)
        elif machine.give_up_s is not None:
            one.timer = self._loop.call_at(machine.give_up_s, self._give_up, one)

    def _send_paced(self, one: ActiveRegistration) -> None:
        """One after the other; who leaves does not wait, for the end of the process may not."""
        now_s = self._loop.time()
        if one.machine.unregistering or self._next_turn_s <= now_s:
            self._send(one)
        else:
            one.timer = self._loop.call_at(self._next_turn_s, self._send, one)
        self._next_turn_s = max(now_s, self._next_turn_s) + (
            0 if one.machine.unregistering else 1 / REGISTERS_PER_SECOND
        )

    def _targets(self, one: ActiveRegistration) -> Sequence[SipTarget]:
        return self._locate(one.trunk.outbound_proxy or one.trunk.host_port)

    def _send(self, one: ActiveRegistration) -> None:
        expires_s = one.machine.send(self._loop.time())
        targets = self._targets(one)
        one.token = next(self._tokens)
        self._awaited[one.token] = one
        if not targets:
            self._on_result(one.token, RegisterResult("unresolved"))
            return
        target = one.target
        if target is None or target not in targets or target in one.tried:
            target = one.target = next((each for each in targets if each not in one.tried), targets[0])
        one.tried.add(target)
        cseq, one.series.cseq = one.series.cseq, one.series.cseq + _CSEQ_STEP
        self._schedule(one)
        self._owner.post(self._send_here, one, one.token, target, cseq, expires_s)

    def _give_up(self, one: ActiveRegistration) -> None:
        """No answer came. Whatever still comes is not awaited."""
        self._owner.post(_native.register_abandon, one.account_id)
        self._on_result(one.token, RegisterResult("silence"))

    def _on_result(self, token: int, outcome: RegisterResult) -> None:
        one = self._awaited.pop(token, None)
        if one is None:
            return
        if not outcome.source and one.target is not None:
            outcome = replace(outcome, source=one.target.address)
        another = any(each not in one.tried for each in self._targets(one))
        one.machine.on_result(self._loop.time(), utc_now(), outcome, another=another)
        if one.machine.ended:
            _log_unregistered(one, outcome)
        if one.machine.status.state == "registered":
            one.tried.clear()
        elif not another:  # begin again with the best one
            one.tried.clear()
            one.target = None
        self._apply(one)

    def _on_connection_lost(self, account: int) -> None:
        for one in self._all:
            if one.account_id == account:
                one.machine.on_connection_lost(self._loop.time())
                self._schedule(one)

    def _keep_alive(self, one: ActiveRegistration) -> None:
        if one.machine.status.state == "registered":
            self._owner.post(_native.register_keep_alive, one.account_id)
        one.keep_alive_timer = self._loop.call_later(KEEP_ALIVE_S, self._keep_alive, one)

    # ---- the owner's thread ----

    def _send_here(self, one: ActiveRegistration, token: int, target: SipTarget, cseq: int, expires_s: int) -> None:
        trunk, who = one.trunk, one.trunk.credentials or _NO_CREDENTIALS
        contact, former = ("", one.contact) if expires_s else (one.contact, "")
        try:
            _native.account_set_route(one.account_id, *route_set(trunk, target))
            one.contact = _native.register_send(
                one.account_id, token, registrar_uri(trunk), address_of_record(trunk), contact, former, cseq, expires_s,
                one.series.call_id, (who.user, who.password),
            )  # fmt: skip
        except ConnectionError as error:
            log.debug("trunk.not_sent", trunk=trunk.key, why=str(error))
            self._post(self._on_result, token, RegisterResult("unreachable", reason=printable(str(error))))


def _log_unregistered(one: ActiveRegistration, outcome: RegisterResult) -> None:
    event = log.bind(trunk=one.trunk.key, number=one.trunk.number, registrar=one.trunk.host)
    if outcome.outcome == "answered" and outcome.code // 100 == 2:
        event.info("trunk.unregistered")
    else:
        event.warning("trunk.not_unregistered", why=why_failed(outcome))


def _cancel(*timers: asyncio.TimerHandle | None) -> None:
    for timer in timers:
        if timer:
            timer.cancel()


def _contact_of(trunk: Trunk) -> Hashable:
    """Trunks that bind the same contact with the same registrar."""
    return trunk.host_port, trunk.user, trunk.number
