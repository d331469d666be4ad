"""The trunks of a server: what the operator allows, host name resolution, the source allowlist and registrations."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

import sqlalchemy as sa
import structlog

from calls.trunks.provisioning import CarrierAccount, TrunkBuilder, TrunkProvisioner
from calls.trunks.source_allowlist import SourceAllowlist
from calls.trunks.trunk_authorization import TrunkAuthorizer
from calls.trunks.trunk_dns_watcher import TrunkDnsWatcher
from config.carrier_settings import ProviderSettings
from config.errors import StartupError
from config.secrets import Secrets
from config.settings import Settings
from sipcore.endpoint import Endpoint
from sipcore.resolver.system_resolver import SystemResolver
from sipcore.security.digest import Credentials
from storage.database.database import Database
from storage.nodes.work_share import WorkShare
from storage.phone_numbers import carrier_presets, trunk_grants
from storage.phone_numbers.carrier_presets import PresetChanges
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy
from storage.phone_numbers.trunk_grants import TrunkUse
from trunkline.wiring.endpoint_settings import sip_locator

RESOLVE_TIMEOUT_S: Final = 5.0
"""The longest wait of a start for the DNS; hosts that take longer become known sources later."""

log = structlog.get_logger()


@dataclass(frozen=True)
class TrunkComponents:
    """The parts that turn the stored phone numbers into the endpoint's trunks and known sources."""

    database: Database
    authorizer: TrunkAuthorizer
    dns_watcher: TrunkDnsWatcher
    sources: SourceAllowlist
    provisioner: TrunkProvisioner
    providers: ProviderSettings

    async def apply_presets(self) -> None:
        """Give every number of a carrier the trunk that the settings have for it; log the numbers that get none."""
        policy = self.authorizer.policy

        def write(conn: sa.Connection) -> tuple[PresetChanges, Mapping[str, int]]:
            rules = trunk_grants.current_access_rules(conn, policy)
            return carrier_presets.apply(conn, self.providers, rules), carrier_presets.count_by_provider(conn)

        changes, counts = await self.database.write(write)
        if changes.changed:
            log.info("carriers.applied", numbers=len(changes.changed))
        for number in changes.conflicts:
            log.warning(
                "carriers.number_contested",
                number=number.number,
                trunk=number.id,
                provider=number.provider,
                why="another organization has this number from the same carrier",
                remedy="grant the carrier to one of them alone (trunkline trunk allow, deny), or delete one number",
            )
        for provider, count in sorted(counts.items()):
            if self.providers.carrier(provider) is None:
                log.warning(
                    "carriers.not_configured",
                    provider=provider,
                    numbers=count,
                    what="no call comes from or goes to these numbers",
                    remedy=f"set host in [providers.{provider}], or give the numbers a trunk of their own (sipMode)",
                )

    async def start(self) -> None:
        """Give numbers the trunks of their carriers, read all trunks, wait for the addresses of their hosts, and hand
        them to the endpoint."""
        await self.apply_presets()
        await self.sources.refresh()
        await self.dns_watcher.wait_resolved(RESOLVE_TIMEOUT_S)
        await self.provisioner.refresh()
        await _log_undecided_trunks(self.database, self.authorizer.policy)

    async def refresh(self) -> None:
        """Read the operator's grants again: they hold from now on for known sources and registrations."""
        await self.provisioner.refresh()
        await self.sources.refresh()

    def on_number_change(self) -> None:
        """A phone number was created, changed or deleted."""
        self.sources.on_number_change()
        self.provisioner.on_number_change()


def open_trunks(
    settings: Settings,
    database: Database,
    secrets: Secrets,
    endpoint: Endpoint,
    stack: AsyncExitStack,
    carriers: Mapping[str, CarrierAccount],
    registrations: WorkShare,
) -> TrunkComponents:
    """Builds the trunk components. No source is known before `sources.refresh` or `start`. `carriers`: from
    `carrier_accounts`; `registrations`: those of this node."""
    authorizer = TrunkAuthorizer(settings.trunks.policy)
    dns_watcher = _open_dns_watcher(settings, endpoint, authorizer, stack)
    sources = SourceAllowlist(
        database, partial(endpoint.set_sources, probes=[*map(str, settings.sip.probes)]), dns_watcher, authorizer.policy
    )
    provisioner = TrunkProvisioner(
        database,
        TrunkBuilder(secrets, dns_watcher, settings.standby, carriers, registrations),
        endpoint.set_trunks,
        endpoint.trunk_status,
        authorizer,
    )
    endpoint.on_registrar_unreached = provisioner.on_registrar_unreached
    return TrunkComponents(database, authorizer, dns_watcher, sources, provisioner, settings.providers)


def carrier_accounts(providers: ProviderSettings) -> dict[str, CarrierAccount]:
    """Returns the accounts of the configured carriers, by provider. Blocks. Raises `StartupError` for a password
    file that cannot be read."""
    accounts: dict[str, CarrierAccount] = {}
    for name, carrier in providers.configured().items():
        try:
            password = carrier.read_password()
        except StartupError as error:
            raise StartupError(f"[providers.{name}] {error.message}") from error
        digest_user = carrier.auth_user or carrier.user
        credentials = Credentials(digest_user, password) if digest_user and password else None
        accounts[name] = CarrierAccount(carrier.user, credentials, carrier.codecs)
    return accounts


def _open_dns_watcher(
    settings: Settings, endpoint: Endpoint, authorizer: TrunkAuthorizer, stack: AsyncExitStack
) -> TrunkDnsWatcher:
    """The DNS watcher of trunk hosts, which resolves them without PJSIP and gives PJSIP the host table."""
    resolver = SystemResolver()
    stack.callback(resolver.close)
    dns_watcher = TrunkDnsWatcher(sip_locator(settings, resolver).locate, endpoint.set_host_table)
    dns_watcher.is_allowed, authorizer.resolved_hosts = authorizer.is_allowed, dns_watcher.all_resolved_addresses
    endpoint.on_unresponsive = dns_watcher.demote
    stack.push_async_callback(dns_watcher.close)
    return dns_watcher


async def _log_undecided_trunks(database: Database, policy: TrunkPolicy) -> None:
    """Log the numbers that use trunks from before trunks needed grants, for the operator to allow or deny."""

    def read(conn: sa.Connection) -> tuple[bool, list[TrunkUse]]:
        rules = trunk_grants.current_access_rules(conn, policy)
        return rules.enforced, [use for use in trunk_grants.trunk_uses(conn, rules) if use.permission == "taken_over"]

    enforced, uses = await database.read(read)
    if enforced and uses:
        log.warning(
            "trunks.to_decide",
            policy=policy,
            organizations=len({use.organization_id for use in uses}),
            trunks=len({use.trunk for use in uses}),
            numbers=len({number.id for use in uses for number in use.numbers}),
            what="they still use trunks that no operator has allowed to their organizations",
            remedy="run `trunkline trunk list`, then `trunkline trunk allow` or `trunkline trunk deny` for each trunk",
        )
