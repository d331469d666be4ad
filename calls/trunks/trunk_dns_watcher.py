"""DNS watcher of trunk hosts: each is resolved, and refreshed before its TTL ends, while it is subscribed to."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest
from typing import Final

import structlog

from calls.cooperative_scheduling import REST_FACTOR
from calls.fair_semaphore import FairSemaphore
from config.special_addresses import non_unicast_kind
from sipcore.resolver.dns_records import LookupFailed
from sipcore.resolver.host_table import MAX_HOSTS
from sipcore.resolver.sip_locator import ResolvedTargets
from sipcore.resolver.target import SipHostPort, SipTarget, ip_literal_targets

MIN_REFRESH_S: Final = 30.0
MAX_REFRESH_S: Final = 3600.0
"""Bounds of the interval of refreshes, which is the TTL."""
FAILURE_RETRY_S: Final = 30.0
"""The interval after a failed lookup."""
JITTER: Final = 0.1
"""Share of the TTL by which a refresh comes earlier at most, at random, so that not all hosts are refreshed at once."""
DEMOTION_S: Final = 300.0
"""Time for which an address that did not respond is tried last."""
CALL_LOOKUP_TTL_S: Final = 600.0
"""Time for which a destination without a subscriber is tracked after a call has resolved it."""
MAX_CALL_LOOKUPS: Final = 256
CONCURRENT_LOOKUPS: Final = 128
"""Organizations share them fairly. Each takes a few sockets."""
CALLS_OWNER: Final = "calls"
"""Owner of destinations without a subscriber, which share like an organization."""

PUBLISH_DELAY_S: Final = 0.02
"""Changes within this time are published together."""

Locate = Callable[[SipHostPort], Awaitable[ResolvedTargets]]
HostTable = Mapping[SipHostPort, Sequence[SipTarget]]

log = structlog.get_logger()


@dataclass
class _TrackedHost:
    """The repeated lookup of a destination, whose addresses are also those of other ports of the host. `looked_up`: set
    after the first lookup, successful or not. Until `complete_until_s` its targets are preferred to incomplete
    answers."""

    destination: SipHostPort
    owner: str
    task: asyncio.Task[None]
    targets: tuple[SipTarget, ...] = ()
    complete_until_s: float = 0.0
    failed: str | None = None
    looked_up: asyncio.Event = field(default_factory=asyncio.Event)


class TrunkDnsWatcher:
    """`publish` is called with the complete table for PJSIP after each change; `on_change` is called then, too. Bound
    to the event loop that it is created on; active until `close`."""

    def __init__(self, locate: Locate, publish: Callable[[HostTable], None]) -> None:
        self._locate = locate
        self._publish = publish
        self._subscriptions: dict[str, dict[SipHostPort, Collection[str]]] = {"trunks": {}}
        """Destinations by subscriber, with the organizations of each. An organization's trunks come first."""
        self._call_lookups: dict[SipHostPort, float] = {}
        self._tracked: dict[SipHostPort, _TrackedHost] = {}
        """By the `_lookup_key` of a destination."""
        self._destinations: frozenset[SipHostPort] = frozenset()
        """All that are subscribed to or were resolved by calls."""
        self._by_host: dict[str, list[_TrackedHost]] = {}
        self._addresses: dict[str, frozenset[str]] = {}
        """Cached results of `resolved_addresses`, until something about the host changes."""
        self._demoted: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self._lookup_slots = FairSemaphore(CONCURRENT_LOOKUPS)
        self._publish_took_s = 0.0
        """Duration of the last publication."""
        self._publish_timer: asyncio.TimerHandle | None = None
        self._all_addresses: Mapping[str, Collection[str]] | None = None
        self.on_change: list[Callable[[], None]] = []
        self.is_allowed: Callable[[str, str], bool] = lambda _host, _address: True
        """Returns True if a host may have an address. The result is not cached, because it may change: then
        `on_authorization_change` is called."""

    def subscribe(
        self, subscriber: str, destinations: Iterable[SipHostPort] | Mapping[SipHostPort, Collection[str]]
    ) -> None:
        """Track these destinations for a subscriber, and no others; lookups of new ones begin at once. IP addresses
        need none. A mapping has the organizations of each destination: they share the table fairly if it is full, and
        destinations without one come last."""
        owners = destinations if isinstance(destinations, Mapping) else {}
        self._subscriptions[subscriber] = {
            _normalized(each): owners.get(each, ()) for each in destinations if ip_literal_targets(each) is None
        }
        self._update_tracked()

    def targets(self, destination: SipHostPort) -> list[SipTarget]:
        """Returns the known targets of a destination, in order of preference; an IP address is its own target."""
        destination = _normalized(destination)
        if (address := ip_literal_targets(destination)) is not None:
            return list(address)
        targets = [
            each for each in self._resolved_targets(destination) if self.is_allowed(destination.host, each.address)
        ]
        if self._demoted:
            targets.sort(key=lambda each: (destination.host, each.address) in self._demoted)
        return targets

    def _resolved_targets(self, destination: SipHostPort) -> Sequence[SipTarget]:
        """Returns the targets of the lookup; a destination that shares the lookup of another port gets its own port and
        transport."""
        tracked = self._tracked.get(_lookup_key(destination)) if destination in self._destinations else None
        if tracked is None or tracked.destination == destination or destination.port is None:
            return tracked.targets if tracked else ()
        port, transport = destination.port, destination.transport or "udp"
        return [_target(each.address, port, transport) for each in tracked.targets]

    async def resolve(self, destination: SipHostPort) -> list[SipTarget]:
        """Returns the targets of a destination; empty if the lookup fails. Waits for the first lookup; a new
        destination is tracked for `CALL_LOOKUP_TTL_S`."""
        destination = _normalized(destination)
        if ip_literal_targets(destination) is None:
            self._track_for_call(destination)
            tracked = self._tracked[_lookup_key(destination)]
            if not tracked.targets:
                await tracked.looked_up.wait()
            self._publish_pending()
        return self.targets(destination)

    async def wait_resolved(self, timeout_s: float) -> None:
        """Wait until every tracked destination has been looked up once, at most `timeout_s`."""
        waiters = [asyncio.create_task(each.looked_up.wait()) for each in self._tracked.values()]
        if waiters:
            _, slow = await asyncio.wait(waiters, timeout=timeout_s)
            for waiter in slow:
                waiter.cancel()
        self._publish_pending()

    def allowed_addresses(self, host: str) -> set[str]:
        """Returns every known address of a host that is allowed, of any port and transport."""
        host = _normalized(SipHostPort(host)).host
        return {each for each in self.resolved_addresses(host) if self.is_allowed(host, each)}

    def resolved_addresses(self, host: str) -> frozenset[str]:
        """Returns every known address of a host, allowed or not."""
        host = _normalized(SipHostPort(host)).host
        if (known := self._addresses.get(host)) is None:
            known = frozenset(each.address for tracked in self._by_host.get(host, ()) for each in tracked.targets)
            if host in self._by_host:
                self._addresses[host] = known
        return known

    def all_resolved_addresses(self) -> Mapping[str, Collection[str]]:
        """Returns `resolved_addresses` of all hosts; the same object until something changes."""
        if self._all_addresses is None:
            self._all_addresses = {host: self.resolved_addresses(host) for host in self._by_host}
        return self._all_addresses

    def lookup_error(self, destination: SipHostPort) -> str | None:
        """Returns why the last lookup of the destination failed; None if it succeeded."""
        tracked = self._tracked.get(_lookup_key(_normalized(destination)))
        if tracked and tracked.targets and not self.targets(destination):
            return "it leads to addresses that the operator has not given"
        return tracked.failed if tracked else None

    def on_authorization_change(self) -> None:
        """Publish again, because `is_allowed` may return something else than before."""
        self._publish_soon()

    def demote(self, host: str, address: str) -> None:
        """Try this address of the host last for `DEMOTION_S`, because it did not respond."""
        key = _normalized(SipHostPort(host)).host, address
        if (previous := self._demoted.pop(key, None)) is not None:
            previous.cancel()
        self._demoted[key] = asyncio.get_running_loop().call_later(DEMOTION_S, self._restore, key)
        log.warning("names.demoted", host=key[0], address=address)
        self._publish_soon()
        self._publish_pending()

    def _restore(self, key: tuple[str, str]) -> None:
        del self._demoted[key]
        self._publish_soon()

    async def close(self) -> None:
        """Cancel all lookups."""
        tasks = [each.task for each in self._tracked.values()]
        for timer in (*self._demoted.values(), *([self._publish_timer] if self._publish_timer else ())):
            timer.cancel()
        self._stop_tracking(list(self._tracked))
        self._destinations = frozenset()
        self._demoted.clear()
        if tasks:
            await asyncio.wait(tasks)

    def _stop_tracking(self, keys: Collection[SipHostPort]) -> None:
        for key in keys:
            tracked = self._tracked.pop(key)
            others = self._by_host[key.host]
            others.remove(tracked)
            if not others:
                del self._by_host[key.host]
            self._addresses.pop(key.host, None)
            tracked.task.cancel()
            tracked.looked_up.set()  # its waiters stop waiting

    # ---- tracking ----

    def _track_for_call(self, destination: SipHostPort) -> None:
        now_s = asyncio.get_running_loop().time()
        self._call_lookups.pop(destination, None)
        self._call_lookups[destination] = now_s + CALL_LOOKUP_TTL_S
        while len(self._call_lookups) > MAX_CALL_LOOKUPS:
            del self._call_lookups[next(iter(self._call_lookups))]
        if destination not in self._destinations:
            self._update_tracked()

    def _update_tracked(self) -> None:
        """Start to track new destinations, and stop to track those that are no longer subscribed to."""
        now_s = asyncio.get_running_loop().time()
        self._call_lookups = {
            destination: until_s for destination, until_s in self._call_lookups.items() if until_s > now_s
        }
        destinations = frozenset(self._call_lookups).union(*self._subscriptions.values())
        before, self._destinations = self._destinations, destinations
        if destinations == before:
            return
        by_key = {_lookup_key(each): each for each in destinations}
        self._stop_tracking(self._tracked.keys() - by_key.keys())
        any_resolved = False
        for key, destination in by_key.items():
            if key not in self._tracked:
                self._start_tracking(key, destination)
            else:
                any_resolved = any_resolved or bool(self._tracked[key].targets)
        if before - destinations or (any_resolved and destinations - before):
            self._publish_soon()

    def _start_tracking(self, key: SipHostPort, destination: SipHostPort) -> None:
        owners = (each for by_owner in self._subscriptions.values() for each in by_owner.get(destination, ()))
        task = asyncio.create_task(self._refresh(key), name=f"track {destination.host}")
        tracked = self._tracked[key] = _TrackedHost(destination, next(owners, CALLS_OWNER), task)
        self._by_host.setdefault(destination.host, []).append(tracked)

    async def _refresh(self, key: SipHostPort) -> None:
        """Look the destination up until cancelled. Its targets stay until a lookup finds others."""
        tracked = self._tracked[key]
        while True:
            async with self._lookup_slots.slot(tracked.owner):
                ttl_s = await self._look_up(tracked.destination, tracked)
            tracked.looked_up.set()
            await asyncio.sleep(refresh_after_s(ttl_s, random.random()))
            self._drop_expired()

    def _drop_expired(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if any(until_s <= now_s for until_s in self._call_lookups.values()):
            self._update_tracked()

    async def _look_up(self, destination: SipHostPort, tracked: _TrackedHost) -> float | None:
        """Look the destination up once. Returns the TTL of the result; None if the lookup failed."""
        try:
            result = _only_unicast(destination, await self._locate(destination))
        except LookupFailed as failure:
            self._lookup_failed(destination, tracked, str(failure))
            return None
        except Exception as error:
            log.error("names.look_up_broken", host=destination.host, error=repr(error), exc_info=error)
            self._lookup_failed(destination, tracked, "the lookup failed unexpectedly, see the log")
            return None
        if not result.targets:
            self._lookup_failed(destination, tracked, f"{destination.host} has no address that takes SIP")
            return None
        now_s = asyncio.get_running_loop().time()
        if not result.complete and tracked.complete_until_s > now_s:
            return None
        tracked.complete_until_s = now_s + MAX_REFRESH_S if result.complete else 0.0
        if tracked.failed is not None:
            tracked.failed = None
            log.info("trunks.host_found", host=destination.host)
        if result.targets != tracked.targets:
            tracked.targets = result.targets
            self._addresses.pop(destination.host, None)
            self._publish_soon()
        return result.ttl_s if result.complete else None

    def _lookup_failed(self, destination: SipHostPort, tracked: _TrackedHost, why: str) -> None:
        """Store the error, and log the first of several failures."""
        if tracked.failed is None:
            kept = sorted({each.address for each in tracked.targets})
            log.warning("trunks.host_unknown", host=destination.host, error=why, kept=kept)
        tracked.failed = why

    def _publish_soon(self) -> None:
        """Publish after `PUBLISH_DELAY_S`, because many hosts may be resolved at the same time; later after a
        publication that took long."""
        self._all_addresses = None
        if self._publish_timer is None:
            soon_s = max(PUBLISH_DELAY_S, REST_FACTOR * self._publish_took_s)
            self._publish_timer = asyncio.get_running_loop().call_later(soon_s, self._publish_table)

    def _publish_pending(self) -> None:
        if self._publish_timer is not None:
            self._publish_timer.cancel()
            self._publish_table()

    def _publish_table(self) -> None:
        self._publish_timer = None
        begun_s = time.perf_counter()
        self._publish(self._table())
        for callback in self.on_change:
            callback()
        self._publish_took_s = time.perf_counter() - begun_s

    def _table(self) -> HostTable:
        """Returns the table for PJSIP, which looks up with a transport: a destination without one is entered under each
        transport of its targets."""
        table: dict[SipHostPort, Sequence[SipTarget]] = {}
        entries: dict[SipHostPort, list[SipHostPort]] = {}
        for destination in sorted(self._destinations, key=lambda each: each.transport is not None):
            targets = self.targets(destination)
            transports = (destination.transport,) if destination.transport else {each.transport for each in targets}
            for transport in transports:
                fitting = [each for each in targets if destination.transport or each.transport == transport]
                if fitting:
                    entry = SipHostPort(destination.host, destination.port, transport)
                    table[entry] = fitting
                    entries.setdefault(destination, []).append(entry)
        if len(table) <= MAX_HOSTS:
            return table
        log.error("names.too_many", places=len(table), most=MAX_HOSTS)
        ordered = list(
            dict.fromkeys(entry for destination in self._in_fair_order() for entry in entries.get(destination, ()))
        )
        return {entry: table[entry] for entry in ordered[:MAX_HOSTS]}

    def _in_fair_order(self) -> list[SipHostPort]:
        """Returns every destination: one of each organization, then a second one of each, and so on; last those without
        an organization."""
        by_owner: dict[str, list[SipHostPort]] = {}
        for owners_of in self._subscriptions.values():
            for destination, owners in owners_of.items():
                for owner in owners:
                    by_owner.setdefault(owner, []).append(destination)
        by_owner[CALLS_OWNER] = list(self._call_lookups)
        interleaved = [
            destination for row in zip_longest(*by_owner.values()) for destination in row if destination is not None
        ]
        return [*dict.fromkeys([*interleaved, *self._destinations])]


def refresh_after_s(ttl_s: float | None, random_value: float) -> float:
    """Returns the seconds until the next lookup; `ttl_s` None: the lookup failed. `random_value`: 0 up to 1."""
    if ttl_s is None:
        return FAILURE_RETRY_S
    return min(max(ttl_s, MIN_REFRESH_S), MAX_REFRESH_S) * (1 - JITTER * (1 + random_value) / 2)


def _only_unicast(destination: SipHostPort, result: ResolvedTargets) -> ResolvedTargets:
    """The result without addresses that a trunk cannot have. Raises `LookupFailed` if no others were found."""
    unusable = {each.address: non_unicast_kind(each.address) for each in result.targets}
    targets = tuple(each for each in result.targets if unusable[each.address] is None)
    if len(targets) == len(result.targets):
        return result
    described = ", ".join(f"{address} ({what})" for address, what in unusable.items() if what is not None)
    if not targets:
        raise LookupFailed(f"{destination.host} has no address that a trunk may have: {described}")
    log.warning("trunks.address_refused", host=destination.host, addresses=described)
    return replace(result, targets=targets)


def _normalized(destination: SipHostPort) -> SipHostPort:
    host = destination.host.lower().removesuffix(".")
    return destination if host == destination.host else destination._replace(host=host)


_target: Final = lru_cache(16384)(SipTarget)


def _lookup_key(destination: SipHostPort) -> SipHostPort:
    """Returns the key of a destination's lookup: with a port it is for the host's addresses (RFC 3263 4.2), which all
    ports share."""
    return destination if destination.port is None else SipHostPort(destination.host, 0)
