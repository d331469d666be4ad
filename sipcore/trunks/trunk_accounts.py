"""An endpoint's trunks: an account for each that registers or knows a password, and its status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import pjsua2 as pj
import structlog

from sipcore import _native
from sipcore.dialogs.invite import InvitePath, pick_target
from sipcore.pjsip_thread import PjsipThread
from sipcore.resolver.host_table import HostTable
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.settings import EndpointSettings
from sipcore.transport.listeners import ip_versions, local_host_for
from sipcore.trunks.pj_account import TrunkAccount, trunk_config
from sipcore.trunks.registration_client import ActiveRegistration, RegistrationClient
from sipcore.trunks.trunk import NEVER_QUALIFIED, NO_ANSWER_YET, Trunk, TrunkStatus
from sipcore.trunks.trunk_uris import request_uri, route_set, user_and_domain

ACCOUNTS_PER_BATCH: Final = 20
"""Accounts that are made in one go: other work of the owner's thread comes in between."""
ACCOUNT_BUSY_RETRY_S: Final = 1.0
"""Between two looks whether the last call of a trunk that is gone has ended."""

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class _TrunkEntry:
    """A trunk with an account of its own."""

    trunk: Trunk
    account: TrunkAccount | None
    account_id: int
    """PJSUA's, of the account."""
    ip_version: int
    """Of IP, for the sound of its calls."""
    registration: ActiveRegistration | None = None


class TrunkAccounts:
    """Use it on the event loop. `on_status` is called when a status has changed in more than its time."""

    def __init__(
        self,
        owner: PjsipThread,
        settings: EndpointSettings,
        on_incoming: Callable[[pj.Account, pj.OnIncomingCallParam], None],
        names: HostTable,
        on_status: Callable[[str, TrunkStatus], None],
    ) -> None:
        self._owner = owner
        self._settings = settings
        self._on_incoming = on_incoming
        self._names = names
        self._on_status = on_status
        self._registrations = RegistrationClient(owner, names.targets, self._on_registration_status)
        self._entries: dict[str, _TrunkEntry] = {}
        self._trunks: dict[str, Trunk] = {}
        self._errors: dict[str, TrunkStatus] = {}
        self._unregistering = False
        self._account_count = 0
        """Accounts that there are, on the owner's thread."""
        self._set_lock = asyncio.Lock()
        self._removals: set[asyncio.Task[None]] = set()
        self._removed: set[_TrunkEntry] = set()
        """Trunks that have changed or gone, whose accounts still have calls or unregister."""

    def install_here(self) -> None:
        """On the owner's thread, once PJSUA is initialized."""
        self._registrations.install_here()

    async def set(self, trunks: Sequence[Trunk]) -> None:
        """From now on these. Those that are the same as before, and live calls, notice nothing."""
        async with self._set_lock:
            wanted = {trunk.key: trunk for trunk in trunks}
            for key in [key for key, line in self._entries.items() if wanted.get(key) != line.trunk]:
                self._remove(self._entries.pop(key))
            for key in self._trunks.keys() - wanted.keys():
                log.info("trunk.removed", trunk=key, number=self._trunks[key].number)
            self._trunks = wanted
            self._errors = {key: error for key, error in self._errors.items() if key in wanted}
            new = [trunk for key, trunk in wanted.items() if _needs_account(trunk) and key not in self._entries]
            for first in range(0, len(new), ACCOUNTS_PER_BATCH):
                await self._add(new[first : first + ACCOUNTS_PER_BATCH])

    def status(self, key: str) -> TrunkStatus:
        """How a trunk stands."""
        line = self._entries.get(key)
        if key in self._errors:
            return self._errors[key]
        if line is not None and line.registration is not None:
            return line.registration.machine.status
        trunk = self._trunks.get(key)
        if trunk is None or (trunk.registers and self._unregistering):
            return TrunkStatus("unregistered")
        if trunk.registers:
            return TrunkStatus("registering")
        return TrunkStatus("listening", NO_ANSWER_YET if trunk.qualify_s else NEVER_QUALIFIED)

    def path(self, trunk: Trunk, to: str, silent: Collection[SipTarget]) -> InvitePath | None:
        """How a call leaves now through a trunk that has an account; None when it needs none. Raises `ConnectionError`
        when there is no account, or no address that is not silent."""
        line = self._entries.get(trunk.key)
        if line is None or line.account is None:
            if _needs_account(self._trunks.get(trunk.key, trunk)):
                raise ConnectionError(self._why_without_account(trunk.key))
            return None
        place = _first_hop(line.trunk)
        target, last = pick_target(self._targets(line), silent, line.registration.target if line.registration else None)
        user, domain = user_and_domain(line.trunk) if line.trunk.registers else (None, local_host_for(target.address))
        routes = tuple(route_set(line.trunk, target))
        return InvitePath(line.account, request_uri(line.trunk, to), domain, user, routes, place.host, target, last)

    def _why_without_account(self, key: str) -> str:
        failed = self._errors.get(key)
        return failed.detail if failed and failed.detail else "the trunk is not there (any more)"

    def on_hosts_changed(self) -> None:
        """Host names have other addresses than before."""
        self._registrations.on_hosts_changed()

    async def unregister(self, timeout_s: float) -> None:
        """Unregister all for good, and wait until the registrars know, at most `timeout_s`. Calls go on."""
        self._unregistering = True
        await self._registrations.unregister_all(timeout_s)

    def begin_unregister(self) -> None:
        """Unregister all for good, and wait for nothing."""
        self._unregistering = True
        self._registrations.begin_unregister_all()

    async def close(self) -> None:
        """Nothing more is sent or told."""
        self._registrations.close()
        for task in self._removals:
            task.cancel()
        await asyncio.gather(*self._removals, return_exceptions=True)

    def destroy_here(self) -> None:
        """On the owner's thread: let go of all accounts."""
        _native.register_remove()
        for line in (*self._entries.values(), *self._removed):
            line.account = None

    # ---- the event loop ----

    def _on_registration_status(self, key: str, status: TrunkStatus) -> None:
        """Of a registration: of a trunk, or of what it was before it changed, which concerns nobody."""
        line = self._entries.get(key)
        if line is None or line.registration is None or line.registration.machine.status is not status:
            return
        event = log.bind(trunk=key, number=line.trunk.number, registrar=line.trunk.host)
        match status.state:
            case "failed":
                event.warning("trunk.failed", user=line.trunk.user, why=status.detail)
            case "registered":
                event.info("trunk.registered", detail=status.detail)
        self._on_status(key, status)

    async def _add(self, trunks: Sequence[Trunk]) -> None:
        for trunk, made in await self._owner.run(self._make_here, trunks):
            if isinstance(made, TrunkStatus):
                self._record_failure(trunk, made)
                continue
            self._errors.pop(trunk.key, None)
            self._entries[trunk.key] = made
            if trunk.registers and not self._unregistering:
                made.registration = self._registrations.register(trunk, made.account_id)

    def _record_failure(self, trunk: Trunk, status: TrunkStatus) -> None:
        if self._errors.get(trunk.key) != status:
            self._errors[trunk.key] = status
            log.error("trunk.failed", trunk=trunk.key, number=trunk.number, why=status.detail)
            self._on_status(trunk.key, status)

    def _targets(self, line: _TrunkEntry) -> Sequence[SipTarget]:
        """The addresses of its first hop: those of the IP version that the sound of its calls goes over, if any."""
        targets = self._names.targets(_first_hop(line.trunk))
        return [each for each in targets if (":" in each.address) == (line.ip_version == 6)] or targets

    def _remove(self, line: _TrunkEntry) -> None:
        """Unregister, and delete the account once its last call is over."""
        gone = self._registrations.unregister(line.registration) if line.registration else None
        self._removed.add(line)
        task = asyncio.create_task(self._delete(line, gone))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _delete(self, line: _TrunkEntry, gone: asyncio.Future[None] | None) -> None:
        if gone is not None:
            await asyncio.shield(gone)
        while not await self._owner.run(self._delete_here, line):  # noqa: ASYNC110 - PJSUA tells nobody
            await asyncio.sleep(ACCOUNT_BUSY_RETRY_S)
        self._removed.discard(line)

    # ---- the owner's thread ----

    def _make_here(self, trunks: Sequence[Trunk]) -> list[tuple[Trunk, _TrunkEntry | TrunkStatus]]:
        return [(trunk, self._make_one_here(trunk)) for trunk in trunks]

    def _make_one_here(self, trunk: Trunk) -> _TrunkEntry | TrunkStatus:
        most = _native.MAX_ACCOUNTS - len(ip_versions(self._settings.host))
        if self._account_count >= most:
            return TrunkStatus("failed", f"this server takes {most} trunks with a registration or a password at most")
        account, version = TrunkAccount(self._on_incoming), self._ip_version(trunk)
        try:
            account.create(trunk_config(self._settings, version, trunk), False)
            number = int(account.getId())
            _native.account_set_route(number)
        except (pj.Error, ConnectionError) as error:
            return TrunkStatus("failed", f"no account could be made: {getattr(error, 'reason', error)}")
        self._account_count += 1
        return _TrunkEntry(trunk, account, number, version)

    def _delete_here(self, line: _TrunkEntry) -> bool:
        """False while the account has calls."""
        if line.account is not None and not _native.account_delete(line.account_id, int(line.account.this)):
            return False
        _native.register_drop(line.account_id)
        line.account = None
        self._account_count -= 1
        return True

    def _ip_version(self, trunk: Trunk) -> int:
        """Of IP, that the sound of its calls goes over."""
        listens = ip_versions(self._settings.host)
        target = next(iter(self._names.targets(_first_hop(trunk))), None)
        wanted = 6 if target and ":" in target.address else 4
        return wanted if wanted in listens else listens[0]


def _needs_account(trunk: Trunk) -> bool:
    return trunk.registers or trunk.credentials is not None or trunk.outbound_proxy is not None


def _first_hop(trunk: Trunk) -> SipHostPort:
    return trunk.outbound_proxy or trunk.host_port
