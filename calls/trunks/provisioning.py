"""Trunk provisioning: builds the endpoint's trunks from the stored phone numbers, and applies every change."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

import structlog

from calls.cooperative_scheduling import DutyCycle, TimeSlice
from calls.periodic_worker import PeriodicWorker
from calls.trunks.trunk_authorization import TrunkAuthorizer
from calls.trunks.trunk_dns_watcher import TrunkDnsWatcher
from config.secrets import Secrets, SecretUnreadable
from sipcore.dialogs.invite_error import InviteError
from sipcore.resolver.target import SipHostPort, Transport, ip_literal_targets
from sipcore.security.digest import Credentials
from sipcore.trunks.trunk import NEVER_QUALIFIED, NO_ANSWER_YET, Trunk, TrunkStatus
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.nodes.work_share import AllWork, WorkShare
from storage.phone_numbers import trunk_grants
from storage.phone_numbers.carrier_presets import uses_preset
from storage.phone_numbers.phone_numbers import PhoneNumber, effective_trunk
from storage.phone_numbers.sip_sources import normal_host
from storage.phone_numbers.trunk_grant_evaluation import TrunkAccessRules

READ_EVERY_S: Final = 300.0
"""Interval of reads of the database without a notified change."""
RETRY_S: Final = 30.0
"""The wait after a failure of the database."""
_SCHEME: Final = re.compile(r"(sips?):(.*)", re.IGNORECASE | re.DOTALL)
_PORT: Final = re.compile(r":([0-9]{1,5})$")
_TRANSPORT: Final = re.compile(r"(?:^|;)transport=(udp|tcp|tls)(?:;|$)", re.IGNORECASE)

_TRUNK_FIELDS: Final = (
    "number", "provider", "carrier_trunk", "sip_mode", "sip_username", "sip_auth_user", "sip_password_encrypted",
)  # fmt: skip
"""The fields of a number that a trunk is built from, besides its destination."""
NO_HOLDER: Final = TrunkStatus("registering", "no node registers it yet")
NO_TRUNK: Final = TrunkStatus("unregistered", "the trunk is not set up: sipMode and its fields are missing")


log = structlog.get_logger()
Apply = Callable[[Sequence[Trunk]], Coroutine[Any, Any, None]]


def missing_trunk(number: PhoneNumber) -> TrunkStatus:
    """Returns the status of a number without a trunk."""
    if not uses_preset(number):
        return NO_TRUNK
    return TrunkStatus(
        "unregistered", f"the trunk is not set up: the server's [providers.{number.provider}] gives it none"
    )


@lru_cache(16384)
def parse_destination(text: str, port: int | None = None, transport: Transport | None = None) -> SipHostPort:
    """Parses `host`, `host:port` or a `sip:` URI. Its own port and transport override the arguments; None: unspecified.
    `sips` means TLS."""
    scheme = _SCHEME.match(text)
    rest, _, parameters = (scheme[2] if scheme else text).partition(";")
    rest = rest.rpartition("@")[2]
    own_port = None if rest.count(":") > 1 and "]" not in rest else _PORT.search(rest)
    parameter = _TRANSPORT.search(parameters)
    by_scheme: Transport | None = "tls" if scheme and scheme[1].lower() == "sips" else None
    own_transport = cast(Transport, parameter[1].lower()) if parameter else by_scheme
    return SipHostPort(normal_host(text), int(own_port[1]) if own_port else port, own_transport or transport)


def trunk_destinations(number: PhoneNumber) -> tuple[SipHostPort, SipHostPort | None]:
    """Returns the destination of the trunk of a number with a source, and its outbound proxy."""
    trunk = effective_trunk(number)
    if trunk.sip_mode == "ip_allowlist":
        return SipHostPort(number.source or "", trunk.sip_port, trunk.sip_protocol or "udp"), None
    registrar = parse_destination(trunk.sip_proxy or "", trunk.sip_port, trunk.sip_protocol)
    if trunk.sip_register_transport:
        registrar = registrar._replace(transport=trunk.sip_register_transport)
    proxy = trunk.sip_outbound_proxy
    return registrar, parse_destination(proxy, None, registrar.transport) if proxy else None


def trunk_key(number: PhoneNumber) -> str:
    """Returns the key of the number's trunk: the number's id, or the provider for numbers that share the registration
    of their carrier, so that it registers once."""
    trunk = number.carrier_trunk
    return number.provider if trunk is not None and trunk["sip_mode"] == "registration" else number.id


@dataclass(frozen=True)
class CarrierAccount:
    """The user of a carrier's registration, and the credentials of REGISTERs and calls; None without them. `codecs`: as
    in `Trunk`."""

    user: str | None
    credentials: Credentials | None
    codecs: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrunkBuilder:
    """Builds trunks from phone numbers. `dns_watcher` has the transport of a host without a stated one. `standby`: no
    trunk registers. `carriers`: the accounts of configured carriers, by provider. `registrations`: the keys of trunks
    that this node registers."""

    secrets: Secrets
    dns_watcher: TrunkDnsWatcher
    standby: bool = False
    carriers: Mapping[str, CarrierAccount] = field(default_factory=dict)
    registrations: WorkShare = field(default_factory=AllWork)

    def build(self, number: PhoneNumber) -> Trunk | None:
        """Returns the number's trunk; None if it is not set up. Raises `SecretUnreadable` for a password that is
        encrypted with another key."""
        if number.source is None:
            return None
        registrar, proxy = trunk_destinations(number)
        registers = effective_trunk(number).sip_mode == "registration"
        user, credentials = self._account(number)
        shared = trunk_key(number) != number.id  # then nothing of a single number may be in it
        return Trunk(
            key=trunk_key(number),
            host=registrar.host,
            port=registrar.port,
            transport=self._transport(registrar),
            outbound_proxy=proxy._replace(transport=self._transport(proxy)) if proxy else None,
            user=user if registers and user else number.number,
            credentials=credentials,
            registers=registers and not self.standby,
            follow_redirects=number.sip_allow_redirect and not shared,
            accept_refer=number.sip_allow_refer and not shared,
            qualify_s=0 if shared else number.sip_qualify_seconds,
            # A contact that is no number: of calls to it, To has the dialled one, also if the user is a number, too.
            number=number.provider if shared else number.number,
            codecs=self.codecs(number),
            registers_here=not registers or self.registrations.does(trunk_key(number)),
        )

    def codecs(self, number: PhoneNumber) -> tuple[str, ...]:
        """Returns the codecs of calls to and from a number, as in `Trunk`."""
        carrier = self.carriers.get(number.provider) if number.carrier_trunk is not None else None
        return () if carrier is None else carrier.codecs

    def _transport(self, host_port: SipHostPort) -> Transport:
        """Returns the transport of a host: the stated one, else that of its first target (RFC 3263 4.1), else UDP."""
        resolved: Transport = next((target.transport for target in self.dns_watcher.targets(host_port)), "udp")
        return host_port.transport or resolved

    def _account(self, number: PhoneNumber) -> tuple[str | None, Credentials | None]:
        """Returns the SIP user of the trunk and its credentials: never the carrier's for a trunk of the number's
        own."""
        if number.carrier_trunk is not None:
            carrier = self.carriers.get(number.provider, CarrierAccount(None, None))
            return carrier.user, carrier.credentials
        user = number.sip_auth_user or number.sip_username
        if not user or not number.sip_password_encrypted:
            return number.sip_username, None
        return number.sip_username, Credentials(user, self.secrets.decrypt(number.sip_password_encrypted))


class TrunkProvisioner:
    """Updates the endpoint's trunks to those of the database, without those that `authorizer` forbids. `apply` sets the
    endpoint's trunks; `status` returns the status of one by its key."""

    def __init__(
        self,
        database: Database,
        builder: TrunkBuilder,
        apply: Apply,
        status: Callable[[str], TrunkStatus],
        authorizer: TrunkAuthorizer | None = None,
    ) -> None:
        self._database = database
        self._authorizer = authorizer or TrunkAuthorizer()
        self.builder = builder
        self._apply = apply
        self._status = status
        self._numbers: list[PhoneNumber] = []
        self._stored: dict[str, PhoneNumber] = {}
        """The numbers whose trunks are applied."""
        self._applied: dict[str, Trunk] = {}
        self._applying = asyncio.Lock()
        self._unusable: dict[str, TrunkStatus] = {}
        self._rejected: dict[str, str] = {}
        """Ids of numbers whose trunks the operator does not allow, and why."""
        self.status_of_other_node: Callable[[str, str], TrunkStatus | None] = lambda *_: None
        """Returns the status of the trunk with a key as the node of this name has it; None if it is not known."""
        self.on_read: Callable[[], None] = lambda: None
        """Called after all numbers were read and their trunks applied, and when other nodes register other trunks."""
        self._duty_cycle = DutyCycle()
        self._worker = PeriodicWorker("trunks.not_refreshed", READ_EVERY_S, RETRY_S, deprecated_field="why")
        builder.dns_watcher.on_change.append(self._worker.wake)
        builder.registrations.on_change = self._worker.wake
        builder.registrations.on_holders = self._on_holders

    def on_number_change(self) -> None:
        """Read again, because a phone number was created, changed or deleted."""
        self._worker.wake()

    def on_registrar_unreached(self, key: str, for_all: bool) -> None:
        """This node cannot reach the registrar of a trunk: another one should register it, and `for_all` all trunks of
        that registrar."""
        trunk = self._applied.get(key)
        if trunk is None or not trunk.registers_here:
            return
        hop = trunk.outbound_proxy or trunk.host_port
        keys = [
            each.key
            for each in self._applied.values()
            if each is trunk or (for_all and each.registers and (each.outbound_proxy or each.host_port) == hop)
        ]
        self.builder.registrations.refuse(keys)

    def own_registrations(self) -> dict[str, TrunkStatus]:
        """Returns the statuses of the trunks that this node registers, by their keys."""
        own = self.builder.registrations
        return {key: self._status(key) for key, each in self._applied.items() if each.registers and own.does(key)}

    def on_other_nodes(self) -> None:
        """The statuses of trunks that other nodes register have changed."""
        self._on_holders()

    def _on_holders(self) -> None:
        if self._numbers:  # else the first read tells it
            self.on_read()

    def status(self, number: PhoneNumber) -> TrunkStatus:
        """Returns the status of a number's trunk, also before the endpoint has it."""
        if number.source is None:
            return missing_trunk(number)
        if (problem := self._problem(number)) is not None:
            return TrunkStatus("failed", problem)
        if number.id in self._unusable:
            return self._unusable[number.id]
        if self._registers_elsewhere(number):
            holder = self.builder.registrations.holder(trunk_key(number))
            if holder is None:
                return NO_HOLDER
            known = self.status_of_other_node(trunk_key(number), holder)
            return known or TrunkStatus("listening", f"node {holder} registers it")
        if self._is_applied(number):
            return self._status(trunk_key(number))
        if effective_trunk(number).sip_mode == "registration":
            return TrunkStatus("registering")
        return TrunkStatus("listening", NO_ANSWER_YET if number.sip_qualify_seconds else NEVER_QUALIFIED)

    def _is_of_other_node(self, number: PhoneNumber) -> bool:
        holder = self.builder.registrations.holder(trunk_key(number))
        return holder is not None and self._registers_elsewhere(number)

    def _registers_elsewhere(self, number: PhoneNumber) -> bool:
        registers = effective_trunk(number).sip_mode == "registration" and not self.builder.standby
        return registers and not self.builder.registrations.does(trunk_key(number))

    def _problem(self, number: PhoneNumber, rules: TrunkAccessRules | None = None) -> str | None:
        return self._authorizer.problem(number, self.builder.dns_watcher.resolved_addresses, rules)

    async def _rules_for(self, number: PhoneNumber) -> TrunkAccessRules | None:
        """Returns the operator's grants as they are stored now; None if they cannot be read: then those of the last
        read count. Raises `InviteError` if the number's trunk may not be used."""
        try:
            rules = await self._database.read(
                lambda conn: trunk_grants.current_access_rules(conn, self._authorizer.policy), priority="calls"
            )
        except StorageUnavailable as trouble:
            log.warning("trunks.not_read", cause=trouble.cause)
            rules = None
        if (problem := self._problem(number, rules)) is not None:
            raise InviteError("not_permitted", problem)
        return rules

    def _is_applied(self, number: PhoneNumber) -> bool:
        """True if the endpoint has the number's trunk as it is stored now."""
        if trunk_key(number) != number.id and trunk_key(number) in self._applied:
            return True  # a carrier's, which the settings alone determine
        before = self._stored.get(number.id)
        if before is None or before == number:
            return before is not None
        return trunk_destinations(before) == trunk_destinations(number) and all(
            getattr(before, name) == getattr(number, name) for name in _TRUNK_FIELDS
        )

    def statuses(self) -> list[tuple[PhoneNumber, TrunkStatus]]:
        """Returns every number with a trunk, as of the last read, and the trunk's status; on several nodes without the
        numbers that other nodes register."""
        return [(number, self.status(number)) for number in self._numbers if not self._is_of_other_node(number)]

    def statuses_of(self, key: str | None) -> Iterator[tuple[PhoneNumber, TrunkStatus]]:
        """Returns the numbers that have the trunk with this key, all with a trunk for None, and their statuses."""
        return ((each, self.status(each)) for each in self._numbers if key is None or trunk_key(each) == key)

    async def ready_trunk(self, number: PhoneNumber) -> Trunk:
        """Returns the trunk of a number for a call: its host is resolved, and the endpoint has it. Raises `InviteError`
        if it cannot be used, or if the number was changed since it was read."""
        rules = await self._rules_for(number)
        registrar, proxy = trunk_destinations(number)
        targets = await self.builder.dns_watcher.resolve(proxy or registrar)
        if (problem := self._problem(number, rules)) is not None:
            raise InviteError("not_permitted", problem)
        if not targets:
            why = self.builder.dns_watcher.lookup_error(proxy or registrar)
            raise InviteError("unresolved", f"the trunk's host is unknown{': ' if why else ''}{why or ''}")
        try:
            trunk = self.builder.build(number)
        except SecretUnreadable as error:
            raise InviteError("trunk_unusable", str(error)) from error
        if trunk is None:
            raise InviteError("trunk_unusable", "the number has no trunk")
        if not await self._ensure_applied(trunk, number):
            raise InviteError("trunk_changed", "the number was changed meanwhile")
        return trunk

    async def _ensure_applied(self, trunk: Trunk, number: PhoneNumber) -> bool:
        """Returns True if the endpoint has the trunk; a trunk that has just been stored is applied first. False for a
        number that was read before the endpoint's trunks and differs from them."""
        if self._applied.get(trunk.key) == trunk:
            return True
        await self._duty_cycle.wait()
        async with self._applying:
            stored = self._stored.get(number.id)
            if self._applied.get(trunk.key) != trunk and (stored is None or stored.updated_at <= number.updated_at):
                await self._read()
        return self._applied.get(trunk.key) == trunk

    async def refresh(self) -> None:
        """Read the trunks now. Raises `StorageUnavailable`."""
        async with self._applying:
            await self._read()

    async def _read(self) -> None:
        with self._duty_cycle.busy():
            await self._read_now()

    async def _read_now(self) -> None:
        rules, numbers = await self._database.read(
            lambda conn: trunk_grants.current_access_rules_and_numbers(conn, self._authorizer.policy)
        )
        self._numbers = numbers
        slices = TimeSlice()
        if await self._authorizer.update(rules, numbers, slices):
            self.builder.dns_watcher.on_authorization_change()
        owners: dict[SipHostPort, set[str]] = {}
        for number in numbers:
            await slices.checkpoint()
            if self._authorizer.problem(number, _no_addresses) is None:
                for destination in trunk_destinations(number):
                    if destination is not None and ip_literal_targets(destination) is None:
                        owners.setdefault(destination, set()).add(number.organization_id)
        self.builder.dns_watcher.subscribe("trunks", owners)
        trunks = await self._trunks(slices)
        self.builder.registrations.want({trunk.key for trunk in trunks if trunk.registers})
        await self._apply(trunks)
        self._applied = {trunk.key: trunk for trunk in trunks}
        self._stored = {number.id: number for number in self._numbers if trunk_key(number) in self._applied}
        self.on_read()

    async def _trunks(self, slices: TimeSlice) -> list[Trunk]:
        trunks = []
        for number in self._numbers:
            await slices.checkpoint()
            if (problem := self._problem(number)) is not None:
                if self._rejected.get(number.id) != problem:
                    log.warning("trunk.refused", trunk=number.id, number=number.number, why=problem)
                self._rejected[number.id] = problem
                continue
            self._rejected.pop(number.id, None)
            try:
                trunk = self.builder.build(number)
            except SecretUnreadable as error:
                if number.id not in self._unusable:
                    log.error("trunk.failed", trunk=number.id, number=number.number, why=str(error))
                self._unusable[number.id] = TrunkStatus("failed", str(error))
                continue
            self._unusable.pop(number.id, None)
            if trunk is not None:
                trunks.append(trunk)
        return trunks

    async def run(self) -> None:
        """Apply changes until cancelled."""
        await self._worker.run(self._reread, at_once=False, rest=self._duty_cycle.wait)

    async def _reread(self) -> bool:
        if self._worker.is_due:
            log.debug("trunks.reading_again")
        await self.refresh()
        return True


def _no_addresses(_host: str) -> Collection[str]:
    """Returns no addresses, for a check without those of the host."""
    return ()
