"""Carriers in `trunkline check` and `trunkline doctor`: the trunk of each, and numbers whose carrier has none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from config.carrier_settings import CarrierSettings
from config.errors import StartupError, TrunklineError
from config.settings import Settings
from storage.database.database import Database
from storage.phone_numbers import carrier_presets
from trunkline.check.host import Advice


async def checks(settings: Settings) -> list[tuple[str, Callable[[Settings], Awaitable[str]]]]:
    """A check for each carrier that is configured or that numbers need, by the name of its line. Without the numbers if
    the database cannot be read, which another check reports."""
    try:
        counts = await _count_numbers(settings)
    except (TrunklineError, OSError):
        counts = {}
    names = sorted({*settings.providers.configured(), *counts})
    return [(name.replace("_", " "), partial(_check_carrier, name, counts.get(name, 0))) for name in names]


async def _count_numbers(settings: Settings) -> Mapping[str, int]:
    """The phone numbers that use each carrier's trunk."""
    database = Database(settings.database_url)
    try:
        await database.open()
        return await database.read(carrier_presets.count_by_provider)
    finally:
        await database.close()


async def _check_carrier(provider: str, numbers: int, settings: Settings) -> str:
    """A line with the carrier's trunk. Raises `Advice` if numbers need it and it is not configured, `StartupError` if
    its password cannot be read."""
    carrier = settings.providers.carrier(provider)
    count = f"{numbers} phone number{'s' * (numbers != 1)}"
    if carrier is None:
        raise Advice(
            f"{count} can neither be called nor call, because [providers.{provider}] has no host: set it, give the "
            "numbers a trunk of their own (sipMode), or delete them"
        )
    try:
        await asyncio.to_thread(carrier.read_password)
    except StartupError as error:
        raise StartupError(f"[providers.{provider}] {error.message}") from error
    return f"{_describe(carrier)}, for {count}"


def _describe(carrier: CarrierSettings) -> str:
    port = f":{carrier.port}" if carrier.port else ""
    host = f"[{carrier.host}]" if port and ":" in str(carrier.host) else carrier.host
    place = f"{host}{port} over {carrier.transport.upper()}"
    named = f"{carrier.name} ({place})" if carrier.name else place
    return f"{named}, {f'registers as {carrier.user}' if carrier.mode == 'registration' else 'known by its address'}"
