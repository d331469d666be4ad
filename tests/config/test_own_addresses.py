"""The addresses of this machine."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from config.own_addresses import own_addresses


def test_own_addresses_can_be_bound_and_others_cannot() -> None:
    own = own_addresses()
    assert "127.0.0.1" in own and "192.0.2.77" not in own
    for address in own:
        if not ip_address(address).is_link_local:  # that takes an interface as well
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind((address, 0))
    assert own_addresses() is own
