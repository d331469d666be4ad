"""The settings of SIP and RTP reach the endpoint."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from config.setting_values import PRIVATE_NETWORKS
from config.settings import Settings
from trunkline.wiring.sip import endpoint_settings


@pytest.mark.parametrize(
    ("sip", "networks"),
    [
        ({}, PRIVATE_NETWORKS),
        ({"media_networks": ["203.0.113.0/24", "fd00::/8"]}, (ip_network("203.0.113.0/24"), ip_network("fd00::/8"))),
        ({"media_networks": []}, ()),
    ],
)
def test_where_sdp_may_want_sound_is_as_the_settings_say(sip: dict[str, object], networks: tuple[object, ...]) -> None:
    assert endpoint_settings(Settings.model_validate({"sip": sip})).media_networks == networks


def test_what_is_no_network_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"media_networks"):
        Settings.model_validate({"sip": {"media_networks": ["carrier.example"]}})
