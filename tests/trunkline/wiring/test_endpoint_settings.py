"""The settings of SIP and RTP reach the endpoint."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from config.settings import Settings
from config.settings_values import PRIVATE_NETWORKS
from trunkline.wiring.endpoint_settings import endpoint_settings


@pytest.mark.parametrize(
    ("sip", "networks"),
    [
        ({}, PRIVATE_NETWORKS),
        ({"media_networks": ["203.0.113.0/24", "fd00::/8"]}, (ip_network("203.0.113.0/24"), ip_network("fd00::/8"))),
        ({"media_networks": []}, ()),
    ],
)
def test_media_networks_are_those_of_the_settings(sip: dict[str, object], networks: tuple[object, ...]) -> None:
    assert endpoint_settings(Settings.model_validate({"sip": sip})).media_networks == networks


def test_an_invalid_media_network_is_rejected_by_the_setting_name() -> None:
    with pytest.raises(ValueError, match=r"media_networks"):
        Settings.model_validate({"sip": {"media_networks": ["carrier.example"]}})
