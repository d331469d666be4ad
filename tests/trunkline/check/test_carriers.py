"""`trunkline check` and `trunkline doctor`: carriers of the settings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from config.errors import StartupError
from config.settings import Settings
from storage.accounts import organizations
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from trunkline.check import carriers
from trunkline.check.host import Advice
from trunkline.organization_admin import open_database


def settings_of(data_dir: Path, **providers: Any) -> Settings:
    return Settings(data_dir=data_dir).with_changes({"providers": providers})


async def create_numbers(settings: Settings, *providers: str) -> None:
    """Create a number without a trunk of its own for each provider."""
    async with open_database(settings) as database:
        owner = (await database.write(lambda conn: organizations.create(conn, "Harbour"))).id
        for index, provider in enumerate(providers):
            fields = PhoneNumberFields(number=str(100 + index), provider=provider)  # type: ignore[arg-type]
            await database.write(partial(phone_numbers.create, organization_id=owner, fields_=fields))


async def lines(settings: Settings) -> dict[str, str]:
    """What each check finds, by the name of its line."""
    found = {}
    for name, run in await carriers.checks(settings):
        try:
            found[name] = await run(settings)
        except (Advice, StartupError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


async def test_without_carriers_there_is_no_line(tmp_path: Path) -> None:
    assert await lines(settings_of(tmp_path)) == {}
    settings = settings_of(tmp_path / "other")
    await create_numbers(settings, "sip")
    assert await lines(settings) == {}


async def test_each_carrier_has_a_line_with_its_trunk_and_the_count_of_its_numbers(tmp_path: Path) -> None:
    registration = {"mode": "registration", "host": "sip.example", "user": "harbour", "transport": "tls"}
    settings = settings_of(
        tmp_path,
        provider_a={**registration, "name": "Harbour Telecom", "password": "hush"},
        provider_b={"host": "2001:db8::1", "port": 5070},
    )
    await create_numbers(settings, "provider_a", "provider_b", "provider_b", "sip")
    assert await lines(settings) == {
        "provider a": "Harbour Telecom (sip.example over TLS), registers as harbour, for 1 phone number",
        "provider b": "[2001:db8::1]:5070 over UDP, known by its address, for 2 phone numbers",
    }


async def test_numbers_whose_carrier_is_not_configured_and_a_missing_password_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "password"
    settings = settings_of(tmp_path / "data", provider_a={"host": "h", "user": "u", "password_file": str(missing)})
    await create_numbers(settings, "provider_c")
    found = await lines(settings)
    assert found["provider a"] == (
        f"StartupError: [providers.provider_a] password_file {missing} cannot be read: No such file or directory"
    )
    assert found["provider c"].startswith(
        "Advice: 1 phone number can neither be called nor call, because [providers.pr"
    )
