"""Administration of organizations and API keys, for commands: works on the database, also while a server runs."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import sqlalchemy as sa
from pydantic.alias_generators import to_camel

from config.did_you_mean import did_you_mean
from config.errors import NotFound, StartupError
from config.operating_system_user import operating_system_user
from config.settings import Settings
from storage.accounts import api_keys, audit_log, balances, organizations, quotas
from storage.accounts.api_keys import ApiKey
from storage.accounts.audit_log import Actor, AuditObject
from storage.accounts.organizations import Organization, Plan
from storage.calls import calls, deletion
from storage.database import file_permissions
from storage.database.database import Database
from storage.database.sqlite import lost_database
from storage.phone_numbers import trunk_grants
from storage.phone_numbers.trunk_grant_evaluation import TrunkAccessRules

_ZERO: Final = Decimal(0)
_CALLS_PER_TRANSACTION: Final = 50


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """The installation's database, open for the block. Raises `StartupError` if it cannot be used, or was lost."""
    database = Database(settings.database_url)
    try:
        await asyncio.to_thread(file_permissions.make_folder, settings.data_dir)
        if database.is_sqlite:
            paths = settings.data_dir, database.path, settings.secret_key_path
            await asyncio.to_thread(lost_database.check_not_lost, *paths)
    except OSError as error:
        raise StartupError(f"data_dir {settings.data_dir} cannot be used: {error.strerror}") from error
    try:
        await database.open()
        yield database
    finally:
        await database.close()


def command_actor() -> Actor:
    """The user of the operating system who runs a command, in the audit log."""
    return Actor("command", operating_system_user())


def record_change(
    conn: sa.Connection, organization_id: str, action: str, fields: Sequence[str] = (), *, item: str | None = None
) -> None:
    """Store in the audit log that a command made a change to an organization, or to its object with the id `item`,
    which exists. `fields` as the API spells them."""
    about = audit_log.object_with_name(conn, action.partition(".")[0], item or organization_id)
    audit_log.record(conn, organization_id, actor=command_actor(), action=action, about=about, fields=fields)


async def create_organization(
    settings: Settings,
    name: str,
    *,
    plan: Plan = "free",
    balance: Decimal = _ZERO,
    max_calls: int | None = None,
    made_by: str = "server",
) -> Organization:
    """Create an organization. Raises `Conflict` if the name is taken."""

    def create(conn: sa.Connection) -> Organization:
        organization = organizations.create(conn, name, plan=plan, max_calls=max_calls)
        record_change(conn, organization.id, "organization.create")
        if balance == 0:
            return organization
        opening = balances.change(conn, organization.id, balance, made_by=made_by, note="at first")
        return replace(organization, balance=opening.balance_after)

    async with open_database(settings) as database:
        return await database.write(create)


async def trunk_policy_note(settings: Settings, name: str) -> str | None:
    """Returns what the operator has to do before the numbers of this organization can use trunks; None if they can."""

    def read(conn: sa.Connection) -> tuple[TrunkAccessRules, int, int]:
        rules = trunk_grants.current_access_rules(conn, settings.trunks.policy)
        usable = {each.id for use in trunk_grants.trunk_uses(conn, rules) if use.permission for each in use.numbers}
        return rules, trunk_grants.count_organizations(conn), len(usable)

    async with open_database(settings) as database:
        rules, count, usable = await database.read(read)
    if not rules.enforced:
        return None
    if settings.trunks.policy == "auto" and count == 2:
        return (
            "with a second organization, trunks need the operator's approval from now on ([trunks] policy): new "
            f"numbers of both need `trunkline trunk allow`. {usable} existing numbers keep working: see `trunkline "
            "trunk list`"
        )
    return f"numbers of {name} need `trunkline trunk allow {shlex.quote(name)} HOST-OR-NETWORK`"


async def list_organizations(settings: Settings) -> list[Organization]:
    """Returns all organizations, oldest first."""
    async with open_database(settings) as database:
        return await database.read(organizations.all_of)


async def create_key(
    settings: Settings, organization_name: str, *, name: str | None = None, requests_per_minute: int | None = None
) -> str:
    """Create an API key; returns its secret text. Raises `NotFound` for an unknown organization, and
    `QuotaExceeded`."""

    def create(conn: sa.Connection) -> str:
        organization = organization_by_name(conn, organization_name)
        usage = quotas.usage(conn, organization.id, settings.quotas.model_dump())
        quotas.require_available(usage, ["api_keys"])
        key, text = api_keys.create(conn, organization.id, name=name, requests_per_minute=requests_per_minute)
        record_change(conn, organization.id, "key.create", item=key.id)
        return text

    async with open_database(settings) as database:
        return await database.write(create)


async def list_keys(settings: Settings, organization_name: str | None) -> list[tuple[ApiKey, str]]:
    """Returns the API keys of an organization, or of all, each with the organization's name. Raises `NotFound` for an
    unknown organization."""

    def read(conn: sa.Connection) -> list[tuple[ApiKey, str]]:
        organization_id = None if organization_name is None else organization_by_name(conn, organization_name).id
        names = {organization.id: organization.name for organization in organizations.all_of(conn)}
        return [(key, names[key.organization_id]) for key in api_keys.all_of(conn, organization_id)]

    async with open_database(settings) as database:
        return await database.read(read)


async def change_organization(settings: Settings, name: str, changes: Mapping[str, Any]) -> Organization:
    """Set fields of an organization; a running server applies them from the next call on. Raises `NotFound`."""

    def change(conn: sa.Connection) -> Organization:
        stored = organization_by_name(conn, name)
        changed = organizations.change(conn, stored, changes)
        differing = [field for field, value in changes.items() if getattr(stored, field) != value]
        if differing:
            record_change(conn, stored.id, "organization.update", list(map(to_camel, differing)))
        return changed

    async with open_database(settings) as database:
        return await database.write(change)


def organization_by_name(conn: sa.Connection, name: str) -> Organization:
    """Returns the organization with exactly this name. Raises `NotFound`."""
    organization = organizations.by_name(conn, name)
    if organization is None:
        known = [each.name for each in organizations.all_of(conn)]
        raise NotFound(f"there is no organization {name!r}: see `trunkline org list`{did_you_mean(name, known)}")
    return organization


async def revoke_key(settings: Settings, prefix_or_id: str) -> ApiKey:
    """Revoke the active API key with this prefix or id. Raises `NotFound` if there is none."""

    def revoke(conn: sa.Connection) -> ApiKey | None:
        revoked = api_keys.revoke(conn, prefix_or_id)
        if revoked is not None:
            record_change(conn, revoked.organization_id, "key.revoke", item=revoked.id)
        return revoked

    async with open_database(settings) as database:
        key = await database.write(revoke)
    if key is None:
        raise NotFound(f"no active key {prefix_or_id!r}: see `trunkline key list`")
    return key


async def rename_organization(settings: Settings, name: str, new_name: str) -> Organization:
    """Give an organization another name. Raises `NotFound`, and `Conflict` if the name is taken."""

    def rename(conn: sa.Connection) -> Organization:
        renamed = organizations.rename(conn, organization_by_name(conn, name), new_name)
        record_change(conn, renamed.id, "organization.update", ["name"])
        return renamed

    async with open_database(settings) as database:
        return await database.write(rename)


async def owned_counts(settings: Settings, name: str) -> dict[str, int]:
    """Returns how much of each kind an organization owns: the counted quotas and `calls`. Raises `NotFound`."""

    def read(conn: sa.Connection) -> dict[str, int]:
        organization = organization_by_name(conn, name)
        usage = quotas.usage(conn, organization.id, settings.quotas.model_dump())
        return {each: usage[each].used for each in quotas.COUNTS} | {"calls": calls.count(conn, organization.id)}

    async with open_database(settings) as database:
        return await database.read(read)


async def delete_organization(settings: Settings, name: str) -> None:
    """Delete an organization with everything that it owns. Its calls go first, in batches that do not keep a running
    server waiting; after an interruption, another deletion goes on. Raises `NotFound`, and `Conflict` while a call of
    it has not ended."""

    def delete_calls(conn: sa.Connection) -> int:
        organization = organization_by_name(conn, name)
        organizations.require_no_open_calls(conn, organization)
        return deletion.delete_calls_of(conn, organization.id, _CALLS_PER_TRANSACTION)

    def delete(conn: sa.Connection) -> None:
        organization = organization_by_name(conn, name)
        organizations.delete(conn, organization)
        about = AuditObject("organization", organization.id, organization.name)
        audit_log.record(conn, None, actor=command_actor(), action="organization.delete", about=about)

    async with open_database(settings) as database:
        while await database.write(delete_calls):
            pass
        await database.write(delete)


async def find_key(settings: Settings, prefix_or_id: str) -> tuple[ApiKey, str]:
    """Returns the API key, revoked or not, with this prefix or id, and its organization's name. Raises `NotFound`."""

    def read(conn: sa.Connection) -> tuple[ApiKey, str]:
        key = key_by_prefix_or_id(conn, prefix_or_id)
        organization = organizations.get(conn, key.organization_id)
        return key, organization.name if organization is not None else "-"

    async with open_database(settings) as database:
        return await database.read(read)


async def rename_key(settings: Settings, prefix_or_id: str, name: str) -> ApiKey:
    """Set the purpose of an API key. Raises `NotFound`."""

    def rename(conn: sa.Connection) -> ApiKey:
        key = key_by_prefix_or_id(conn, prefix_or_id)
        api_keys.rename(conn, key.id, name)
        record_change(conn, key.organization_id, "key.update", ["name"], item=key.id)
        return replace(key, name=name)

    async with open_database(settings) as database:
        return await database.write(rename)


async def delete_key(settings: Settings, prefix_or_id: str) -> ApiKey:
    """Delete an API key, which stops working at once. Raises `NotFound`."""

    def delete(conn: sa.Connection) -> ApiKey:
        key = key_by_prefix_or_id(conn, prefix_or_id)
        record_change(conn, key.organization_id, "key.delete", item=key.id)
        api_keys.delete(conn, key.id)
        return key

    async with open_database(settings) as database:
        return await database.write(delete)


def key_by_prefix_or_id(conn: sa.Connection, prefix_or_id: str) -> ApiKey:
    """Returns the API key with this prefix or id. Raises `NotFound`."""
    key = api_keys.by_prefix_or_id(conn, prefix_or_id)
    if key is None:
        similar = did_you_mean(prefix_or_id, [each.prefix for each in api_keys.all_of(conn)])
        raise NotFound(f"there is no key {prefix_or_id!r}: see `trunkline key list`{similar}")
    return key
