"""REGISTER client: runs a `sipcore.trunks.registration.Registration` for each trunk that registers, and sends at a
limited rate."""

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
from sipcore.trunks.registration import RegisterOutcome, RegisterResult, Registration, failure_detail
from sipcore.trunks.trunk import Trunk, TrunkStatus
from sipcore.trunks.trunk_uris import address_of_record, registrar_uri, route_set

REGISTERS_PER_SECOND: Final = 50
"""The rate limit, so that a thousand trunks do not register at once."""
TAKEN_OVER_PER_SECOND: Final = 200
"""The rate of trunks that another node has registered before, because calls to them may fail meanwhile."""
MAX_UNANSWERED: Final = 100
"""With more REGISTERs that wait for a response, the registrar does not keep up: `REGISTERS_PER_SECOND` is the limit."""
UNREACHED_TIMES: Final = 3
"""Tries after which a registrar counts as out of this server's reach: some 45 s where nothing answers."""
KEEP_ALIVE_S: Final = 25.0
"""NATs drop a UDP binding after 30 s and more (RFC 4787 4.3 asks for 120)."""
_CSEQ_STEP: Final = 4
"""The CSeq numbers of a REGISTER and its answers to challenges."""
_NO_CREDENTIALS: Final = Credentials("", "")

log = structlog.get_logger(__name__)


@dataclass
class _RegisterSeries:
    """The Call-ID and CSeq of the REGISTERs of one contact with one registrar, which orders them by CSeq (RFC 3261
    10.3): a trunk that is changed goes on in the series of its former registration."""

    call_id: str = field(default_factory=lambda: str(uuid4()))
    cseq: int = 1


@dataclass(eq=False)
class ActiveRegistration:
    """A registration, and the state of its requests. `account_id` is PJSUA's number of the account."""

    trunk: Trunk
    account_id: int
    machine: Registration
    series: _RegisterSeries
    ended: asyncio.Future[None]
    """Done when the registration has ended: the registrar has removed the contact, or could not be reached."""
    contact: str = ""
    """The Contact that was sent last; used on the PJSIP thread."""
    target: SipTarget | None = None
    """The target that it is registered at, or tried at."""
    tried: set[SipTarget] = field(default_factory=set)
    token: int = -1
    timer: asyncio.TimerHandle | None = None
    keep_alive_timer: asyncio.TimerHandle | None = None
    reported: TrunkStatus | None = None
    taken_over: bool = False
    """Another node has registered it, and no REGISTER was sent here."""


class RegistrationClient:
    """The registrations of an endpoint. `locate` returns the targets of a host and port by preference; `on_status` is
    called with a trunk's key when its status has changed, in more than the time that it lasts, and `on_unreached` when
    its registrar could not be reached `UNREACHED_TIMES` or more times in succession, with True if the registrar has
    answered for no other trunk meanwhile. Event loop only."""

    def __init__(
        self,
        pjsip_thread: PjsipThread,
        locate: Callable[[SipHostPort], Sequence[SipTarget]],
        on_status: Callable[[str, TrunkStatus], None],
        on_unreached: Callable[[str, bool], None] = lambda _key, _all: None,
    ) -> None:
        self._pjsip_thread = pjsip_thread
        self._locate = locate
        self._on_status = on_status
        self._on_unreached = on_unreached
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count(1)
        self._awaited: dict[int, ActiveRegistration] = {}
        self._series: dict[Hashable, _RegisterSeries] = {}
        self._all: set[ActiveRegistration] = set()
        self._next_send_s = 0.0
        self._answered_s: dict[SipHostPort, float] = {}
        """When a registrar or outbound proxy has answered last."""

    def install_on_pjsip_thread(self) -> None:
        """On the PJSIP thread, when PJSUA is initialized."""
        _native.register_install(self._on_native_result, self._on_native_connection_lost)

    def register(self, trunk: Trunk, account_id: int, *, taken_over: bool = False) -> ActiveRegistration:
        """Register from a PJSUA account, and keep registered. `taken_over`: another node did so before."""
        series = self._series.setdefault(_contact_of(trunk), _RegisterSeries())
        machine = Registration(self._loop.time(), random.random)
        registration = ActiveRegistration(
            trunk, account_id, machine, series, self._loop.create_future(), taken_over=taken_over
        )
        self._all.add(registration)
        self._schedule(registration)
        return registration

    def unregister(self, registration: ActiveRegistration) -> asyncio.Future[None]:
        """Unregister; the future is done when that has ended, after `RESPONSE_TIMEOUT_S` at the latest."""
        if not registration.machine.unregistering:
            self._awaited.pop(registration.token, None)
            registration.machine.unregister(self._loop.time())
            self._apply(registration)
        return registration.ended

    def start_unregister_all(self) -> list[asyncio.Future[None]]:
        """Unregister all; returns the futures of their ends."""
        return [self.unregister(registration) for registration in list(self._all)]

    async def unregister_all(self, timeout_s: float) -> None:
        """Unregister all, and wait for the registrars' responses, at most `timeout_s` seconds."""
        if ends := self.start_unregister_all():
            await asyncio.wait(ends, timeout=timeout_s)

    def close(self) -> None:
        """Send nothing more."""
        for registration in self._all:
            _cancel(registration.timer, registration.keep_alive_timer)
        self._all.clear()

    def on_hosts_changed(self) -> None:
        """The addresses of host names have changed."""
        now_s = self._loop.time()
        for registration in list(self._all):
            if self._targets(registration) and registration.target not in self._targets(registration):
                registration.machine.on_host_resolved(now_s)
                self._apply(registration)

    # ---- PJSIP's threads ----

    def _on_native_result(
        self, token: int, outcome: str, code: int, reason: str, source: str, expires_s: int, retry_s: int, min_s: int
    ) -> None:
        optional = [None if seconds < 0 else seconds for seconds in (retry_s, min_s)]
        self._post(
            self._on_result,
            token,
            RegisterResult(cast(RegisterOutcome, outcome), code, printable(reason), source, expires_s, *optional),
        )

    def _on_native_connection_lost(self, account: int) -> None:
        self._post(self._on_connection_lost, account)

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    # ---- the event loop ----

    def _apply(self, registration: ActiveRegistration) -> None:
        """Report the new status of the state machine, and set its timer."""
        status = registration.machine.status
        if (
            registration.reported is None
            or status.state != registration.reported.state
            or (status.state == "failed" and status != registration.reported)
        ):
            registration.reported = status
            if status.state == "registered" and registration.keep_alive_timer is None:
                registration.keep_alive_timer = self._loop.call_later(KEEP_ALIVE_S, self._keep_alive, registration)
            self._on_status(registration.trunk.key, status)
        if registration.machine.ended:
            self._remove(registration)
        else:
            self._schedule(registration)

    def _remove(self, registration: ActiveRegistration) -> None:
        _cancel(registration.timer, registration.keep_alive_timer)
        self._all.discard(registration)
        if all(other.series is not registration.series for other in self._all):
            self._series.pop(_contact_of(registration.trunk), None)
        if not registration.ended.done():
            registration.ended.set_result(None)

    def _schedule(self, registration: ActiveRegistration) -> None:
        _cancel(registration.timer)
        machine = registration.machine
        if machine.due_s is not None:
            registration.timer = self._loop.call_at(machine.due_s, self._send_paced, registration)
        elif machine.response_deadline_s is not None:
            registration.timer = self._loop.call_at(machine.response_deadline_s, self._give_up, registration)

    def _send_paced(self, registration: ActiveRegistration) -> None:
        """Send at the limited rate; unregistering does not wait, because it must not delay the end of the process."""
        now_s = self._loop.time()
        if registration.machine.unregistering or self._next_send_s <= now_s:
            self._send(registration)
        else:
            registration.timer = self._loop.call_at(self._next_send_s, self._send_in_turn, registration)
        pace = TAKEN_OVER_PER_SECOND if registration.taken_over else REGISTERS_PER_SECOND
        self._next_send_s = max(now_s, self._next_send_s) + (0 if registration.machine.unregistering else 1 / pace)

    def _send_in_turn(self, registration: ActiveRegistration) -> None:
        if registration.taken_over and len(self._awaited) > MAX_UNANSWERED:
            registration.taken_over = False
            self._send_paced(registration)
        else:
            self._send(registration)

    def _targets(self, registration: ActiveRegistration) -> Sequence[SipTarget]:
        return self._locate(_first_hop(registration.trunk))

    def _send(self, registration: ActiveRegistration) -> None:
        registration.taken_over = False
        expires_s = registration.machine.begin_request(self._loop.time())
        targets = self._targets(registration)
        registration.token = next(self._tokens)
        self._awaited[registration.token] = registration
        if not targets:
            self._on_result(registration.token, RegisterResult("unresolved"))
            return
        target = registration.target
        if target is None or target not in targets or target in registration.tried:
            target = registration.target = next(
                (other for other in targets if other not in registration.tried), targets[0]
            )
        registration.tried.add(target)
        cseq, registration.series.cseq = registration.series.cseq, registration.series.cseq + _CSEQ_STEP
        self._schedule(registration)
        self._pjsip_thread.post(self._send_on_pjsip_thread, registration, registration.token, target, cseq, expires_s)

    def _give_up(self, registration: ActiveRegistration) -> None:
        """No final response was received in time; a later one is ignored."""
        self._pjsip_thread.post(_native.register_abandon, registration.account_id)
        self._on_result(registration.token, RegisterResult("timeout"))

    def _on_result(self, token: int, result: RegisterResult) -> None:
        registration = self._awaited.pop(token, None)
        if registration is None:
            return
        if result.outcome == "answered":
            self._answered_s[_first_hop(registration.trunk)] = self._loop.time()
        if not result.source and registration.target is not None:
            result = replace(result, source=registration.target.address)
        has_untried = any(target not in registration.tried for target in self._targets(registration))
        registration.machine.on_result(self._loop.time(), utc_now(), result, has_untried_target=has_untried)
        if registration.machine.ended:
            _log_unregistered(registration, result)
        if registration.machine.status.state == "registered":
            registration.tried.clear()
        elif not has_untried:  # begin again with the best target
            registration.tried.clear()
            registration.target = None
        self._apply(registration)
        if registration.machine.unreached >= UNREACHED_TIMES and not registration.machine.unregistering:
            answered_s = self._answered_s.get(_first_hop(registration.trunk), float("-inf"))
            self._on_unreached(registration.trunk.key, answered_s < registration.machine.unreached_since_s)

    def _on_connection_lost(self, account: int) -> None:
        for registration in self._all:
            if registration.account_id == account:
                registration.machine.on_connection_lost(self._loop.time())
                self._schedule(registration)

    def _keep_alive(self, registration: ActiveRegistration) -> None:
        if registration.machine.status.state == "registered":
            self._pjsip_thread.post(_native.register_keep_alive, registration.account_id)
        registration.keep_alive_timer = self._loop.call_later(KEEP_ALIVE_S, self._keep_alive, registration)

    # ---- the PJSIP thread ----

    def _send_on_pjsip_thread(
        self, registration: ActiveRegistration, token: int, target: SipTarget, cseq: int, expires_s: int
    ) -> None:
        trunk, credentials = registration.trunk, registration.trunk.credentials or _NO_CREDENTIALS
        contact, former = ("", registration.contact) if expires_s else (registration.contact, "")
        try:
            _native.account_set_route(registration.account_id, *route_set(trunk, target))
            registration.contact = _native.register_send(
                registration.account_id, token, registrar_uri(trunk), address_of_record(trunk), contact, former, cseq,
                expires_s, registration.series.call_id, (credentials.user, credentials.password),
            )  # fmt: skip
        except ConnectionError as error:
            log.debug("trunk.not_sent", trunk=trunk.key, why=str(error))
            self._post(self._on_result, token, RegisterResult("unreachable", reason=printable(str(error))))


def _log_unregistered(registration: ActiveRegistration, result: RegisterResult) -> None:
    event = log.bind(trunk=registration.trunk.key, number=registration.trunk.number, registrar=registration.trunk.host)
    if result.outcome == "answered" and result.code // 100 == 2:
        event.info("trunk.unregistered")
    else:
        event.warning("trunk.not_unregistered", why=failure_detail(result))


def _cancel(*timers: asyncio.TimerHandle | None) -> None:
    for timer in timers:
        if timer:
            timer.cancel()


def _first_hop(trunk: Trunk) -> SipHostPort:
    return trunk.outbound_proxy or trunk.host_port


def _contact_of(trunk: Trunk) -> Hashable:
    """A key that is equal for trunks that bind the same contact with the same registrar."""
    return trunk.host_port, trunk.user, trunk.number
