"""Numbers get the trunk that the settings have for their carrier."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from config.carrier_settings import ProviderSettings
from storage.accounts import organizations
from storage.database.database import Database
from storage.phone_numbers import carrier_presets, phone_numbers
from storage.phone_numbers.carrier_presets import PresetChanges
from storage.phone_numbers.phone_numbers import PhoneNumber, PhoneNumberFields, named_trunks, request_hosts, sources_of
from storage.phone_numbers.trunk_grant_evaluation import OPEN_RULES, TrunkAccessRules


def providers(**provider_a: Any) -> ProviderSettings:
    return ProviderSettings.model_validate({"provider_a": provider_a})


NONE = ProviderSettings()
BY_ADDRESS = providers(host="192.0.2.1", port=5070, transport="tcp", sources=["198.51.100.0/24"])
REGISTERED = providers(
    mode="registration", host="sip.example", user="harbour", password="hush", outbound_proxy="edge.example:5080"
)  # fmt: skip


async def apply(database: Database, settings: ProviderSettings, rules: TrunkAccessRules = OPEN_RULES) -> PresetChanges:
    return await database.write(lambda conn: carrier_presets.apply(conn, settings, rules))


async def create(database: Database, owner: str, number: str = "100", **fields: Any) -> PhoneNumber:
    """Store a number of a carrier without a trunk, as earlier versions did."""
    new = PhoneNumberFields(**{"number": number, "provider": "provider_a", **fields})
    return await database.write(lambda conn: phone_numbers.create(conn, owner, new))


async def get(database: Database, number: PhoneNumber) -> PhoneNumber:
    stored = await database.read(lambda conn: phone_numbers.get(conn, number.organization_id, number.id))
    assert stored is not None
    return stored


async def find(database: Database, source: str, dialled: str = "100") -> str | None:
    """The id of the number that a call matches."""
    match = await database.read(lambda conn: phone_numbers.match_inbound(conn, [source], dialled))
    return None if match is None else match.number.id


async def test_a_number_has_the_trunk_that_the_settings_have_now(database: Database, organization_id: str) -> None:
    number = await create(database, organization_id)
    assert await find(database, "192.0.2.1") is None
    assert (await apply(database, NONE)).changed == []
    [changed] = (await apply(database, BY_ADDRESS)).changed
    assert changed == await get(database, number)
    assert (changed.source, sources_of(changed)) == ("192.0.2.1", {"192.0.2.1", "198.51.100.0/24"})
    assert [await find(database, each) for each in ("192.0.2.1", "198.51.100.0/24")] == [number.id] * 2
    assert (await apply(database, BY_ADDRESS)).changed == [], "the number has it already"
    [changed] = (await apply(database, REGISTERED)).changed
    assert request_hosts(changed) == ["sip.example", "edge.example"]
    assert [await find(database, each) for each in ("192.0.2.1", "edge.example")] == [None, number.id]
    [changed] = (await apply(database, NONE)).changed
    assert (changed.source, changed.carrier_trunk, await find(database, "edge.example")) == (None, None, None)


async def test_the_password_is_not_stored(database: Database, organization_id: str) -> None:
    await create(database, organization_id)
    [changed] = (await apply(database, REGISTERED)).changed
    assert "hush" not in str(changed.carrier_trunk)


@pytest.mark.parametrize(
    "fields",
    [
        {"provider": "sip"},
        {"provider": "provider_b"},
        {"sip_mode": "ip_allowlist", "sip_ip": "203.0.113.9"},
    ],
)
async def test_other_numbers_do_not_get_it(database: Database, organization_id: str, fields: dict[str, Any]) -> None:
    number = await create(database, organization_id, **fields)
    assert (await apply(database, BY_ADDRESS)).changed == []
    assert await get(database, number) == number


async def test_fields_of_the_number_itself_are_no_part_of_the_trunk(database: Database, organization_id: str) -> None:
    await create(database, organization_id, sip_ip="203.0.113.9", sip_port=1, sip_sources=["203.0.113.10"])
    [changed] = (await apply(database, BY_ADDRESS)).changed
    assert sources_of(changed) == {"192.0.2.1", "198.51.100.0/24"}
    assert named_trunks(changed) == {
        "sipIp": "203.0.113.9",
        "sipSources.0": "203.0.113.10",
        "provider": "192.0.2.1",
        "provider.1": "198.51.100.0/24",
    }


async def test_of_two_organizations_with_the_same_number_one_gets_it(database: Database, organization_id: str) -> None:
    first = await create(database, organization_id)
    other = (await database.write(lambda conn: organizations.create(conn, "other"))).id
    second = await create(database, other)
    changes = await apply(database, BY_ADDRESS)
    assert ([each.id for each in changes.changed], changes.conflicts) == ([first.id], [second])
    assert await find(database, "192.0.2.1") == first.id


async def test_numbers_that_use_a_preset_are_counted(database: Database, organization_id: str) -> None:
    await create(database, organization_id)
    await create(database, organization_id, "101", provider="provider_c")
    await create(database, organization_id, "102", provider="provider_c")
    await create(database, organization_id, "103", sip_mode="ip_allowlist", sip_ip="203.0.113.9")

    def count(conn: sa.Connection) -> dict[str, int]:
        return dict(carrier_presets.count_by_provider(conn))

    assert await database.read(count) == {"provider_a": 1, "provider_c": 2}
