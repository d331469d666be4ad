"""Asks as `sipcore.trunks.qualify` decides: one series of OPTIONS for each place that trunks without a registration are
at, however many they are."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from config.clock import utc_now
from sipcore import _native
from sipcore.messages.headers import printable
from sipcore.pjsip_thread import PjsipThread
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.trunks.qualify import OptionsOutcome, OptionsResult, Qualify
from sipcore.trunks.trunk import Trunk, TrunkStatus
from sipcore.trunks.trunk_uris import host_port_uri

_REQUEST_TIMEOUT: Final = 408
"""What PJSIP says when no final response has come."""

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class _QualifiedHost:
    """A place and the trunks that are there."""

    host_port: SipHostPort
    machine: Qualify
    trunk_keys: set[str] = field(default_factory=set)
    target: SipTarget | None = None
    unresolved: bool = False
    token: int = -1
    timer: asyncio.TimerHandle | None = None


class QualifyClient:
    """All of an endpoint's. `locate`: the addresses of a place by preference; `account_towards`: PJSUA's number of an
    account that sends to an address, raises `ConnectionError` when there is none. `on_status` is called with a trunk's
    key when it comes or goes, `on_silent` when one of several addresses of a host does not answer. Use it on the event
    loop."""

    def __init__(
        self,
        owner: PjsipThread,
        locate: Callable[[SipHostPort], Sequence[SipTarget]],
        account_towards: Callable[[str], int],
        on_status: Callable[[str, TrunkStatus], None],
        on_silent: Callable[[str, str], None],
    ) -> None:
        self._owner = owner
        self._locate = locate
        self._account_towards = account_towards
        self._on_status = on_status
        self._on_unresponsive = on_silent
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count(1)
        self._hosts: dict[SipHostPort, _QualifiedHost] = {}
        self._host_of_trunk: dict[str, _QualifiedHost] = {}
        self._awaited: dict[int, _QualifiedHost] = {}

    def install_here(self) -> None:
        """On the owner's thread, once PJSUA is initialized."""
        _native.options_install(self._on_native_result)

    def set(self, trunks: Iterable[Trunk]) -> None:
        """From now on these, as far as they want to be asked. A place that was there before goes on in its series."""
        wanted = [trunk for trunk in trunks if not trunk.registers and trunk.qualify_s > 0]
        every_s: dict[SipHostPort, int] = {}
        for trunk in wanted:
            every_s[trunk.host_port] = min(trunk.qualify_s, every_s.get(trunk.host_port, trunk.qualify_s))
        for place in self._hosts.keys() - every_s.keys():
            self._stop(self._hosts.pop(place))
        for place, seconds in every_s.items():
            self._begin(place, seconds)
        for asked in self._hosts.values():
            asked.trunk_keys.clear()
        self._host_of_trunk = {trunk.key: self._hosts[trunk.host_port] for trunk in wanted}
        for key, asked in self._host_of_trunk.items():
            asked.trunk_keys.add(key)

    def status(self, key: str) -> TrunkStatus | None:
        """How a trunk stands; None for one that is not asked."""
        asked = self._host_of_trunk.get(key)
        return asked.machine.status if asked else None

    def on_hosts_changed(self) -> None:
        """Hosts may have other addresses: whoever had none is asked at once."""
        for asked in self._hosts.values():
            if asked.unresolved and self._locate(asked.host_port):
                asked.unresolved = False
                asked.machine.on_host_resolved(self._loop.time())
                self._schedule(asked)

    def close(self) -> None:
        """Ask nothing more."""
        _native.options_remove()
        for asked in self._hosts.values():
            self._stop(asked)
        self._hosts.clear()
        self._host_of_trunk.clear()

    # ---- PJSIP's threads ----

    def _on_native_result(self, token: int, answered: bool, code: int, microseconds: int, why: str) -> None:
        end: OptionsOutcome = "answered" if answered else "silence" if code == _REQUEST_TIMEOUT else "unreachable"
        reply = OptionsResult(end, code, microseconds / 1000, why=printable(why))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_result, token, reply)

    # ---- the event loop ----

    def _begin(self, place: SipHostPort, every_s: int) -> None:
        if (asked := self._hosts.get(place)) is not None:
            asked.machine.every_s = every_s
            return
        asked = self._hosts[place] = _QualifiedHost(place, Qualify(self._loop.time(), every_s, random.random))
        self._schedule(asked)

    def _stop(self, asked: _QualifiedHost) -> None:
        self._awaited.pop(asked.token, None)
        if asked.timer:
            asked.timer.cancel()

    def _schedule(self, asked: _QualifiedHost) -> None:
        if asked.timer:
            asked.timer.cancel()
        machine = asked.machine
        if machine.due_s is not None:
            asked.timer = self._loop.call_at(machine.due_s, self._send, asked)
        elif machine.give_up_s is not None:
            asked.timer = self._loop.call_at(machine.give_up_s, self._on_result, asked.token, OptionsResult("silence"))

    def _send(self, asked: _QualifiedHost) -> None:
        asked.machine.send(self._loop.time())
        asked.token = next(self._tokens)
        asked.target = next(iter(self._locate(asked.host_port)), None)
        self._awaited[asked.token] = asked
        self._schedule(asked)
        asked.unresolved = asked.target is None
        if asked.target is None:
            self._on_result(asked.token, OptionsResult("unresolved"))
            return
        self._owner.post(self._send_here, asked.token, asked.target, asked.host_port)

    def _on_result(self, token: int, reply: OptionsResult) -> None:
        asked = self._awaited.pop(token, None)
        if asked is None:
            return
        source = asked.target.address if asked.target else ""
        before = asked.machine.status.state
        asked.machine.on_result(self._loop.time(), utc_now(), replace(reply, source=source))
        if not reply.reachable and asked.target is not None and len(self._locate(asked.host_port)) > 1:
            self._on_unresponsive(asked.host_port.host, source)
        if asked.machine.status.state != before:
            self._report(asked)
        self._schedule(asked)

    def _report(self, asked: _QualifiedHost) -> None:
        status = asked.machine.status
        if status.state == "failed":
            log.warning("trunk.unreachable", host=asked.host_port.host, trunks=len(asked.trunk_keys), why=status.detail)
        else:
            log.info("trunk.reachable", host=asked.host_port.host, trunks=len(asked.trunk_keys), detail=status.detail)
        for key in asked.trunk_keys:
            self._on_status(key, status)

    # ---- the owner's thread ----

    def _send_here(self, token: int, target: SipTarget, place: SipHostPort) -> None:
        try:
            _native.options_send(self._account_towards(target.address), host_port_uri(place), token)
        except ConnectionError as error:
            log.debug("trunk.not_asked", host=place.host, why=str(error))
            self._on_native_result(token, answered=False, code=503, microseconds=0, why=str(error))
