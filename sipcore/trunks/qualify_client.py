"""OPTIONS client: runs a `sipcore.trunks.qualify.Qualify` for each host and port of trunks without a registration."""

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
"""The status that PJSIP reports without a final response."""

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class _QualifiedHost:
    """A host and port, and its trunks."""

    host_port: SipHostPort
    machine: Qualify
    trunk_keys: set[str] = field(default_factory=set)
    target: SipTarget | None = None
    unresolved: bool = False
    token: int = -1
    timer: asyncio.TimerHandle | None = None


class QualifyClient:
    """All OPTIONS of an endpoint. `locate` returns the targets of a host and port by preference; `account_towards`
    returns PJSUA's number of an account that sends to an address, and raises `ConnectionError` without one. `on_status`
    is called with a trunk's key when it becomes reachable or unreachable, `on_unresponsive` with a host and the one of
    its several addresses that did not respond. Event loop only."""

    def __init__(
        self,
        pjsip_thread: PjsipThread,
        locate: Callable[[SipHostPort], Sequence[SipTarget]],
        account_towards: Callable[[str], int],
        on_status: Callable[[str, TrunkStatus], None],
        on_unresponsive: Callable[[str, str], None],
    ) -> None:
        self._pjsip_thread = pjsip_thread
        self._locate = locate
        self._account_towards = account_towards
        self._on_status = on_status
        self._on_unresponsive = on_unresponsive
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count(1)
        self._hosts: dict[SipHostPort, _QualifiedHost] = {}
        self._host_of_trunk: dict[str, _QualifiedHost] = {}
        self._awaited: dict[int, _QualifiedHost] = {}

    def install_on_pjsip_thread(self) -> None:
        """On the PJSIP thread, when PJSUA is initialized."""
        _native.qualify_install(self._on_native_result)

    def set(self, trunks: Iterable[Trunk]) -> None:
        """Replace the trunks; those that register, or have qualify off, are left out. The state of a host that remains
        is kept."""
        qualified = [trunk for trunk in trunks if not trunk.registers and trunk.qualify_s > 0]
        interval_s: dict[SipHostPort, int] = {}
        for trunk in qualified:
            interval_s[trunk.host_port] = min(trunk.qualify_s, interval_s.get(trunk.host_port, trunk.qualify_s))
        for host_port in self._hosts.keys() - interval_s.keys():
            self._stop(self._hosts.pop(host_port))
        for host_port, seconds in interval_s.items():
            self._begin(host_port, seconds)
        for host in self._hosts.values():
            host.trunk_keys.clear()
        self._host_of_trunk = {trunk.key: self._hosts[trunk.host_port] for trunk in qualified}
        for key, host in self._host_of_trunk.items():
            host.trunk_keys.add(key)

    def status(self, key: str) -> TrunkStatus | None:
        """The status of a trunk; None for one without OPTIONS."""
        host = self._host_of_trunk.get(key)
        return host.machine.status if host else None

    def on_hosts_changed(self) -> None:
        """The addresses of host names have changed: a host that had none gets OPTIONS at once."""
        for host in self._hosts.values():
            if host.unresolved and self._locate(host.host_port):
                host.unresolved = False
                host.machine.on_host_resolved(self._loop.time())
                self._schedule(host)

    def close(self) -> None:
        """Send nothing more."""
        _native.qualify_remove()
        for host in self._hosts.values():
            self._stop(host)
        self._hosts.clear()
        self._host_of_trunk.clear()

    # ---- PJSIP's threads ----

    def _on_native_result(self, token: int, answered: bool, code: int, microseconds: int, why: str) -> None:
        outcome: OptionsOutcome = "answered" if answered else "timeout" if code == _REQUEST_TIMEOUT else "unreachable"
        result = OptionsResult(outcome, code, microseconds / 1000, why=printable(why))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_result, token, result)

    # ---- the event loop ----

    def _begin(self, host_port: SipHostPort, interval_s: int) -> None:
        if (host := self._hosts.get(host_port)) is not None:
            host.machine.interval_s = interval_s
            return
        host = self._hosts[host_port] = _QualifiedHost(host_port, Qualify(self._loop.time(), interval_s, random.random))
        self._schedule(host)

    def _stop(self, host: _QualifiedHost) -> None:
        self._awaited.pop(host.token, None)
        if host.timer:
            host.timer.cancel()

    def _schedule(self, host: _QualifiedHost) -> None:
        if host.timer:
            host.timer.cancel()
        machine = host.machine
        if machine.due_s is not None:
            host.timer = self._loop.call_at(machine.due_s, self._send, host)
        elif machine.response_deadline_s is not None:
            host.timer = self._loop.call_at(
                machine.response_deadline_s, self._on_result, host.token, OptionsResult("timeout")
            )

    def _send(self, host: _QualifiedHost) -> None:
        host.machine.begin_request(self._loop.time())
        host.token = next(self._tokens)
        host.target = next(iter(self._locate(host.host_port)), None)
        self._awaited[host.token] = host
        self._schedule(host)
        host.unresolved = host.target is None
        if host.target is None:
            self._on_result(host.token, OptionsResult("unresolved"))
            return
        self._pjsip_thread.post(self._send_on_pjsip_thread, host.token, host.target, host.host_port)

    def _on_result(self, token: int, result: OptionsResult) -> None:
        host = self._awaited.pop(token, None)
        if host is None:
            return
        source = host.target.address if host.target else ""
        before = host.machine.status.state
        host.machine.on_result(self._loop.time(), utc_now(), replace(result, source=source))
        if not result.reachable and host.target is not None and len(self._locate(host.host_port)) > 1:
            self._on_unresponsive(host.host_port.host, source)
        if host.machine.status.state != before:
            self._report(host)
        self._schedule(host)

    def _report(self, host: _QualifiedHost) -> None:
        status = host.machine.status
        if status.state == "failed":
            log.warning("trunk.unreachable", host=host.host_port.host, trunks=len(host.trunk_keys), why=status.detail)
        else:
            log.info("trunk.reachable", host=host.host_port.host, trunks=len(host.trunk_keys), detail=status.detail)
        for key in host.trunk_keys:
            self._on_status(key, status)

    # ---- the PJSIP thread ----

    def _send_on_pjsip_thread(self, token: int, target: SipTarget, host_port: SipHostPort) -> None:
        try:
            _native.qualify_send(self._account_towards(target.address), host_port_uri(host_port), token)
        except ConnectionError as error:
            log.debug("trunk.not_asked", host=host_port.host, why=str(error))
            self._on_native_result(token, answered=False, code=503, microseconds=0, why=str(error))
