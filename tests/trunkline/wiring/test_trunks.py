"""The accounts of carriers, from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calls.trunks.provisioning import CarrierAccount
from config.carrier_settings import ProviderSettings
from config.errors import StartupError
from sipcore.security.digest import Credentials
from trunkline.wiring.sip.trunks import carrier_accounts


@pytest.mark.parametrize(
    ("fields", "account"),
    [
        ({}, CarrierAccount(None, None)),
        ({"user": "u"}, CarrierAccount("u", None)),
        ({"user": "u", "password": "p"}, CarrierAccount("u", Credentials("u", "p"))),
        ({"codecs": ["PCMA", "PCMU"]}, CarrierAccount(None, None, ("PCMA", "PCMU"))),
        ({"user": "u", "auth_user": "login", "password": "p"}, CarrierAccount("u", Credentials("login", "p"))),
    ],
)
def test_a_carrier_has_its_codecs_and_credentials_if_it_has_a_user_and_a_password(
    fields: dict[str, Any], account: CarrierAccount
) -> None:
    providers = ProviderSettings.model_validate({"provider_b": {"host": "h", **fields}})
    assert carrier_accounts(providers) == {"provider_b": account}


def test_a_password_file_that_cannot_be_read_stops_the_start_with_its_setting(tmp_path: Path) -> None:
    carrier = {"host": "h", "user": "u", "password_file": str(tmp_path / "gone")}
    providers = ProviderSettings.model_validate({"provider_c": carrier})
    with pytest.raises(StartupError, match=r"^\[providers\.provider_c\] password_file .*gone cannot be read: No such"):
        carrier_accounts(providers)
