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
from sipcore.trunks.qualify import End, Qualification, Reply
from sipcore.trunks.trunk import Trunk, TrunkStatus
from sipcore.trunks.trunk_uris import place_uri

_SILENCE: Final = 408
"""What PJSIP says when no final response has come."""

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class _Asked:
    """A place and the trunks that are there."""

    place: SipHostPort
    machine: Qualification
    keys: set[str] = field(default_factory=set)
    target: SipTarget | None = None
    unresolved: bool = False
    token: int = -1
    timer: asyncio.TimerHandle | None = None


class Qualifications:
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
        self._on_silent = on_silent
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count(1)
        self._asked: dict[SipHostPort, _Asked] = {}
        self._of: dict[str, _Asked] = {}
        self._awaited: dict[int, _Asked] = {}

    def install_here(self) -> None:
        """On the owner's thread, once PJSUA is initialized."""
        _native.options_install(self._on_end)

    def set(self, trunks: Iterable[Trunk]) -> None:
        """From now on these, as far as they want to be asked. A place that was there before goes on in its series."""
        wanted = [trunk for trunk in trunks if not trunk.registers and trunk.qualify_s > 0]
        every_s: dict[SipHostPort, int] = {}
        for trunk in wanted:
            every_s[trunk.host_port] = min(trunk.qualify_s, every_s.get(trunk.host_port, trunk.qualify_s))
        for place in self._asked.keys() - every_s.keys():
            self._stop(self._asked.pop(place))
        for place, seconds in every_s.items():
            self._begin(place, seconds)
        for asked in self._asked.values():
            asked.keys.clear()
        self._of = {trunk.key: self._asked[trunk.host_port] for trunk in wanted}
        for key, asked in self._of.items():
            asked.keys.add(key)

    def status(self, key: str) -> TrunkStatus | None:
        """How a trunk stands; None for one that is not asked."""
        asked = self._of.get(key)
        return asked.machine.status if asked else None

    def located(self) -> None:
        """Hosts may have other addresses: whoever had none is asked at once."""
        for asked in self._asked.values():
            if asked.unresolved and self._locate(asked.place):
                asked.unresolved = False
                asked.machine.found(self._loop.time())
                self._schedule(asked)

    def close(self) -> None:
        """Ask nothing more."""
        _native.options_remove()
        for asked in self._asked.values():
            self._stop(asked)
        self._asked.clear()
        self._of.clear()

    # ---- PJSIP's threads ----

    def _on_end(self, token: int, answered: bool, code: int, microseconds: int, why: str) -> None:
        end: End = "answered" if answered else "silence" if code == _SILENCE else "unreachable"
        reply = Reply(end, code, microseconds / 1000, why=printable(why))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._answered, token, reply)

    # ---- the event loop ----

    def _begin(self, place: SipHostPort, every_s: int) -> None:
        if (asked := self._asked.get(place)) is not None:
            asked.machine.every_s = every_s
            return
        asked = self._asked[place] = _Asked(place, Qualification(self._loop.time(), every_s, random.random))
        self._schedule(asked)

    def _stop(self, asked: _Asked) -> None:
        self._awaited.pop(asked.token, None)
        if asked.timer:
            asked.timer.cancel()

    def _schedule(self, asked: _Asked) -> None:
        if asked.timer:
            asked.timer.cancel()
        machine = asked.machine
        if machine.due_s is not None:
            asked.timer = self._loop.call_at(machine.due_s, self._ask, asked)
        elif machine.give_up_s is not None:
            asked.timer = self._loop.call_at(machine.give_up_s, self._answered, asked.token, Reply("silence"))

    def _ask(self, asked: _Asked) -> None:
        asked.machine.send(self._loop.time())
        asked.token = next(self._tokens)
        asked.target = next(iter(self._locate(asked.place)), None)
        self._awaited[asked.token] = asked
        self._schedule(asked)
        asked.unresolved = asked.target is None
        if asked.target is None:
            self._answered(asked.token, Reply("unresolved"))
            return
        self._owner.post(self._ask_here, asked.token, asked.target, asked.place)

    def _answered(self, token: int, reply: Reply) -> None:
        asked = self._awaited.pop(token, None)
        if asked is None:
            return
        source = asked.target.address if asked.target else ""
        before = asked.machine.status.state
        asked.machine.answered(self._loop.time(), utc_now(), replace(reply, source=source))
        if not reply.good and asked.target is not None and len(self._locate(asked.place)) > 1:
            self._on_silent(asked.place.host, source)
        if asked.machine.status.state != before:
            self._tell(asked)
        self._schedule(asked)

    def _tell(self, asked: _Asked) -> None:
        status = asked.machine.status
        if status.state == "failed":
            log.warning("trunk.unreachable", host=asked.place.host, trunks=len(asked.keys), why=status.detail)
        else:
            log.info("trunk.reachable", host=asked.place.host, trunks=len(asked.keys), detail=status.detail)
        for key in asked.keys:
            self._on_status(key, status)

    # ---- the owner's thread ----

    def _ask_here(self, token: int, target: SipTarget, place: SipHostPort) -> None:
        try:
            _native.options_send(self._account_towards(target.address), place_uri(place), token)
        except ConnectionError as error:
            log.debug("trunk.not_asked", host=place.host, why=str(error))
            self._on_end(token, answered=False, code=503, microseconds=0, why=str(error))
