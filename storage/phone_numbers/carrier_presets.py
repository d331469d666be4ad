"""Carrier presets: the trunks that the settings give to the numbers of a provider (`[providers.provider_a]`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from config.carrier_settings import CarrierSettings, ProviderSettings
from config.errors import Invalid
from storage import tables
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import NUMBER, PhoneNumber, PhoneNumberFields
from storage.phone_numbers.trunk_grant_evaluation import TrunkAccessRules

_t = tables.phone_numbers


@dataclass(frozen=True)
class PresetChanges:
    """What `apply` has done. `changed`: the numbers that have another trunk now, or none any more. `conflicts`: those
    that get none, because another organization has the number from the same carrier."""

    changed: Sequence[PhoneNumber]
    conflicts: Sequence[PhoneNumber]


def uses_preset(number: PhoneNumberFields) -> bool:
    """True for a number of a carrier that has no trunk of its own."""
    return number.provider != "sip" and number.sip_mode is None


def carrier_trunk(number: PhoneNumberFields, providers: ProviderSettings) -> dict[str, Any] | None:
    """Returns the trunk of the number's provider, for `PhoneNumberFields.carrier_trunk`; None if the number has its
    own, or the provider is not configured."""
    carrier = providers.carrier(number.provider) if uses_preset(number) else None
    return None if carrier is None else _trunk(carrier)


def _trunk(carrier: CarrierSettings) -> dict[str, Any]:
    """The fields of a number with such a trunk, as JSON has them; without the password, which is not stored."""
    common = {"sip_mode": carrier.mode, "sip_port": carrier.port, "sip_sources": list(carrier.sources)}
    if carrier.mode == "ip_allowlist":
        return {**common, "sip_ip": carrier.host, "sip_protocol": carrier.transport}
    return {
        **common,
        "sip_proxy": carrier.host,
        "sip_outbound_proxy": carrier.outbound_proxy or None,
        "sip_register_transport": carrier.transport,
    }


def apply(conn: sa.Connection, providers: ProviderSettings, rules: TrunkAccessRules) -> PresetChanges:
    """Give every number the trunk that its provider has in the settings now."""
    changed, conflicts = [], []
    for number in _numbers_of_carriers(conn):
        trunk = carrier_trunk(number, providers)
        if trunk == number.carrier_trunk:
            continue
        try:
            changed.append(phone_numbers.replace(conn, number, {"carrier_trunk": trunk}, rules))
        except Invalid:
            conflicts.append(number)
            if number.carrier_trunk is not None:
                changed.append(phone_numbers.replace(conn, number, {"carrier_trunk": None}, rules))
    return PresetChanges(changed, conflicts)


def _numbers_of_carriers(conn: sa.Connection) -> list[PhoneNumber]:
    query = sa.select(*NUMBER.columns).where(_t.c.provider != "sip").order_by(_t.c.created_at, _t.c.id)
    return [NUMBER.build(row) for row in conn.execute(query)]


def count_by_provider(conn: sa.Connection) -> Mapping[str, int]:
    """The number of phone numbers that use the preset of each provider, configured or not."""
    return Counter(number.provider for number in _numbers_of_carriers(conn) if uses_preset(number))
