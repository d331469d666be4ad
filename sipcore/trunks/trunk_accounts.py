"""The trunks of an endpoint: a PJSUA account for each that registers, has credentials or an outbound proxy, and its
status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pjsua2 as pj
import structlog

from sipcore import _native
from sipcore.dialogs.invite import InvitePath, local_host_for, pick_target
from sipcore.dialogs.invite_error import InviteError
from sipcore.pjsip_thread import PjsipThread
from sipcore.resolver.host_table import HostTable
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.settings import EndpointSettings
from sipcore.transport.listeners import ip_versions
from sipcore.trunks.pj_account import TrunkAccount, trunk_config
from sipcore.trunks.registration_client import ActiveRegistration, RegistrationClient
from sipcore.trunks.trunk import NEVER_QUALIFIED, NO_ANSWER_YET, Trunk, TrunkStatus
from sipcore.trunks.trunk_uris import request_uri, route_set, user_and_domain

ACCOUNTS_PER_BATCH: Final = 20
"""Accounts that are made in one batch: other work of the PJSIP thread comes in between."""
ACCOUNT_BUSY_RETRY_S: Final = 1.0
"""Between two attempts to delete the account of a removed trunk, while it has calls."""

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class _TrunkEntry:
    """A trunk with an account of its own."""

    trunk: Trunk
    account: TrunkAccount | None
    account_id: int
    """PJSUA's number of the account."""
    ip_version: int
    """The IP version of its calls' RTP."""
    registration: ActiveRegistration | None = None
    unregistered: asyncio.Future[None] | None = None
    """The end of the former registration, if another node registers the trunk now."""

    @property
    def is_unregistering(self) -> bool:
        """True while the former registration ends."""
        return self.unregistered is not None and not self.unregistered.done()


class TrunkAccounts:
    """Event loop only. `on_status` is called with a trunk's key when its status has changed, in more than the time that
    a registration lasts; `on_unreached` as by `RegistrationClient`."""

    def __init__(
        self,
        pjsip_thread: PjsipThread,
        settings: EndpointSettings,
        on_incoming: Callable[[pj.Account, pj.OnIncomingCallParam], None],
        host_table: HostTable,
        on_status: Callable[[str, TrunkStatus], None],
        on_unreached: Callable[[str, bool], None] = lambda _key, _all: None,
    ) -> None:
        self._pjsip_thread = pjsip_thread
        self._settings = settings
        self._on_incoming = on_incoming
        self._host_table = host_table
        self._on_status = on_status
        self._registrations = RegistrationClient(
            pjsip_thread, host_table.targets, self._on_registration_status, on_unreached
        )
        self._entries: dict[str, _TrunkEntry] = {}
        self._trunks: dict[str, Trunk] = {}
        self._errors: dict[str, TrunkStatus] = {}
        self._unregistering = False
        self._account_count = 0
        """Accounts that PJSUA has, counted on the PJSIP thread."""
        self._set_lock = asyncio.Lock()
        self._removals: set[asyncio.Task[None]] = set()
        self._removed: set[_TrunkEntry] = set()
        """Former trunks whose accounts still have calls, or are unregistering."""

    def install_on_pjsip_thread(self) -> None:
        """On the PJSIP thread, when PJSUA is initialized."""
        self._registrations.install_on_pjsip_thread()

    async def set(self, trunks: Sequence[Trunk]) -> None:
        """Replace the trunks. Those that are the same as before, and live calls, are not affected."""
        async with self._set_lock:
            by_key = {trunk.key: trunk for trunk in trunks}
            for key, entry in list(self._entries.items()):
                if not self._keeps_account(entry, by_key.get(key)):
                    self._remove(self._entries.pop(key))
            for key in self._trunks.keys() - by_key.keys():
                log.info("trunk.removed", trunk=key, number=self._trunks[key].number)
            self._trunks = by_key
            self._errors = {key: error for key, error in self._errors.items() if key in by_key}
            new = [trunk for key, trunk in by_key.items() if _needs_account(trunk) and key not in self._entries]
            for first in range(0, len(new), ACCOUNTS_PER_BATCH):
                await self._add(new[first : first + ACCOUNTS_PER_BATCH])

    def _keeps_account(self, entry: _TrunkEntry, trunk: Trunk | None) -> bool:
        """Returns True if a trunk keeps its account, because at most the node that registers it has changed: then it
        is registered or unregistered here. An account has one registration at a time."""
        if trunk is None or replace(trunk, registers_here=entry.trunk.registers_here) != entry.trunk:
            return False
        if trunk == entry.trunk:
            return True
        if trunk.registers_here and entry.is_unregistering:
            return False
        entry.trunk = trunk
        if not trunk.registers_here and entry.registration is not None:
            entry.unregistered, entry.registration = self._registrations.unregister(entry.registration), None
        self._register(entry, taken_over=True)
        return True

    def status(self, key: str) -> TrunkStatus:
        """The status of a trunk."""
        entry = self._entries.get(key)
        if key in self._errors:
            return self._errors[key]
        if entry is not None and entry.registration is not None:
            return entry.registration.machine.status
        trunk = self._trunks.get(key)
        if trunk is None or (trunk.registers and self._unregistering):
            return TrunkStatus("unregistered")
        if trunk.registers and not trunk.registers_here:
            return TrunkStatus("listening", "another node registers it")
        if trunk.registers:
            return TrunkStatus("registering")
        return TrunkStatus("listening", NO_ANSWER_YET if trunk.qualify_s else NEVER_QUALIFIED)

    def path(self, trunk: Trunk, to: str, failed_targets: Collection[SipTarget]) -> InvitePath | None:
        """The path of an INVITE through a trunk that has an account; None when it needs none. Raises `InviteError` when
        there is no account, or when all targets have failed."""
        entry = self._entries.get(trunk.key)
        if entry is None or entry.account is None:
            if _needs_account(self._trunks.get(trunk.key, trunk)):
                raise self._no_account(trunk.key)
            return None
        hop = _first_hop(entry.trunk)
        preferred = entry.registration.target if entry.registration else None
        target, is_last = pick_target(self._targets(entry), failed_targets, preferred)
        user, domain = user_and_domain(entry.trunk) if entry.trunk.registers else (None, local_host_for(target.address))
        routes = tuple(route_set(entry.trunk, target))
        return InvitePath(entry.account, request_uri(entry.trunk, to), domain, user, routes, hop.host, target, is_last)

    def _no_account(self, key: str) -> InviteError:
        failed = self._errors.get(key)
        if failed and failed.detail:
            return InviteError("trunk_unusable", failed.detail)
        return InviteError("trunk_changed", "the trunk is not there (any more)")

    def on_hosts_changed(self) -> None:
        """The addresses of host names have changed."""
        self._registrations.on_hosts_changed()

    async def unregister(self, timeout_s: float) -> None:
        """Unregister all for good, and wait for the registrars' responses, at most `timeout_s` seconds. Calls go on."""
        self._unregistering = True
        await self._registrations.unregister_all(timeout_s)

    def start_unregister(self) -> None:
        """Unregister all for good, without waiting."""
        self._unregistering = True
        self._registrations.start_unregister_all()

    async def close(self) -> None:
        """Send and report nothing more."""
        self._registrations.close()
        for task in self._removals:
            task.cancel()
        await asyncio.gather(*self._removals, return_exceptions=True)

    def destroy_on_pjsip_thread(self) -> None:
        """Drop all accounts; PJSUA deletes them when it is destroyed. On the PJSIP thread."""
        _native.register_remove()
        for entry in (*self._entries.values(), *self._removed):
            if entry.account is not None:
                _native.account_detach(int(entry.account.this))
            entry.account = None

    # ---- the event loop ----

    def _on_registration_status(self, key: str, status: TrunkStatus) -> None:
        """The status of a registration; that of a former trunk is ignored."""
        entry = self._entries.get(key)
        if entry is None or entry.registration is None or entry.registration.machine.status is not status:
            return
        event = log.bind(trunk=key, number=entry.trunk.number, registrar=entry.trunk.host)
        match status.state:
            case "failed":
                event.warning("trunk.failed", user=entry.trunk.user, why=status.detail)
            case "registered":
                event.info("trunk.registered", detail=status.detail)
        self._on_status(key, status)

    async def _add(self, trunks: Sequence[Trunk]) -> None:
        for trunk, made in await self._pjsip_thread.run(self._make_on_pjsip_thread, trunks):
            if isinstance(made, TrunkStatus):
                self._record_failure(trunk, made)
                continue
            self._errors.pop(trunk.key, None)
            self._entries[trunk.key] = made
            self._register(made)

    def _register(self, entry: _TrunkEntry, *, taken_over: bool = False) -> None:
        trunk = entry.trunk
        if trunk.registers and trunk.registers_here and not self._unregistering:
            entry.registration = self._registrations.register(trunk, entry.account_id, taken_over=taken_over)

    def _record_failure(self, trunk: Trunk, status: TrunkStatus) -> None:
        if self._errors.get(trunk.key) != status:
            self._errors[trunk.key] = status
            log.error("trunk.failed", trunk=trunk.key, number=trunk.number, why=status.detail)
            self._on_status(trunk.key, status)

    def _targets(self, entry: _TrunkEntry) -> Sequence[SipTarget]:
        """The targets of the first hop: those with the IP version of its calls' RTP, if there are any."""
        targets = self._host_table.targets(_first_hop(entry.trunk))
        return [target for target in targets if (":" in target.address) == (entry.ip_version == 6)] or targets

    def _remove(self, entry: _TrunkEntry) -> None:
        """Unregister, and delete the account when its last call is over."""
        registration = entry.registration
        unregistered = self._registrations.unregister(registration) if registration else entry.unregistered
        self._removed.add(entry)
        task = asyncio.create_task(self._delete(entry, unregistered))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _delete(self, entry: _TrunkEntry, unregistered: asyncio.Future[None] | None) -> None:
        if unregistered is not None:
            await asyncio.shield(unregistered)
        while not await self._pjsip_thread.run(self._delete_on_pjsip_thread, entry):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(ACCOUNT_BUSY_RETRY_S)
        self._removed.discard(entry)

    # ---- the PJSIP thread ----

    def _make_on_pjsip_thread(self, trunks: Sequence[Trunk]) -> list[tuple[Trunk, _TrunkEntry | TrunkStatus]]:
        return [(trunk, self._make_one_on_pjsip_thread(trunk)) for trunk in trunks]

    def _make_one_on_pjsip_thread(self, trunk: Trunk) -> _TrunkEntry | TrunkStatus:
        max_accounts = _native.MAX_ACCOUNTS - len(ip_versions(self._settings.host))
        if self._account_count >= max_accounts:
            why = f"this server takes {max_accounts} trunks with a registration or a password at most"
            return TrunkStatus("failed", why)
        account, version = TrunkAccount(self._on_incoming), self._ip_version(trunk)
        try:
            account.create(trunk_config(self._settings, version, trunk), False)
            account_id = int(account.getId())
            _native.account_set_route(account_id)
        except (pj.Error, ConnectionError) as error:
            return TrunkStatus("failed", f"no account could be made: {getattr(error, 'reason', error)}")
        self._account_count += 1
        return _TrunkEntry(trunk, account, account_id, version)

    def _delete_on_pjsip_thread(self, entry: _TrunkEntry) -> bool:
        """Delete the account of a former trunk; False while it has calls."""
        if entry.account is not None and not _native.account_delete(entry.account_id, int(entry.account.this)):
            return False
        _native.register_drop(entry.account_id)
        entry.account = None
        self._account_count -= 1
        return True

    def _ip_version(self, trunk: Trunk) -> int:
        """The IP version of its calls' RTP: that of the first target, if SIP listens on it."""
        listens = ip_versions(self._settings.host)
        target = next(iter(self._host_table.targets(_first_hop(trunk))), None)
        preferred = 6 if target and ":" in target.address else 4
        return preferred if preferred in listens else listens[0]


def _needs_account(trunk: Trunk) -> bool:
    return trunk.registers or trunk.credentials is not None or trunk.outbound_proxy is not None


def _first_hop(trunk: Trunk) -> SipHostPort:
    return trunk.outbound_proxy or trunk.host_port
