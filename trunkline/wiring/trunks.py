"""The trunks of a server: what the operator allows, host name resolution, the source allowlist and registrations."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

import sqlalchemy as sa
import structlog

from calls.trunks.provisioning import TrunkBuilder, TrunkProvisioner
from calls.trunks.source_allowlist import SourceAllowlist
from calls.trunks.trunk_authorization import TrunkAuthorizer
from calls.trunks.trunk_dns_watcher import TrunkDnsWatcher
from config.secrets import Secrets
from config.settings import Settings
from sipcore.endpoint import Endpoint
from sipcore.resolver.system_resolver import SystemResolver
from storage.database.database import Database
from storage.phone_numbers import trunk_grants
from storage.phone_numbers.trunk_grant_evaluation import TrunkPolicy
from storage.phone_numbers.trunk_grants import TrunkUse
from trunkline.wiring.sip import sip_locator

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

    async def start(self) -> None:
        """Read the trunks, wait for the addresses of their hosts, and hand them to the endpoint."""
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
    settings: Settings, database: Database, secrets: Secrets, endpoint: Endpoint, stack: AsyncExitStack
) -> TrunkComponents:
    """Builds the trunk components. No source is known before `sources.refresh` or `start`."""
    authorizer = TrunkAuthorizer(settings.trunks.policy)
    dns_watcher = _open_dns_watcher(settings, endpoint, authorizer, stack)
    sources = SourceAllowlist(
        database, partial(endpoint.set_sources, probes=[*map(str, settings.sip.probes)]), dns_watcher, authorizer.policy
    )
    provisioner = TrunkProvisioner(
        database,
        TrunkBuilder(secrets, dns_watcher, settings.standby),
        endpoint.set_trunks,
        endpoint.trunk_status,
        authorizer,
    )
    return TrunkComponents(database, authorizer, dns_watcher, sources, provisioner)


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
