"""Outbound INVITEs from an endpoint that listens on every address."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from sipcore.endpoint import Endpoint
from sipcore.messages.headers import NameAddr
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.security.digest import Credentials
from sipcore.settings import EndpointSettings
from sipcore.trunks.trunk import Trunk
from tests.peers.ports import free_port
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone


async def test_invite_has_the_local_address_on_the_route_to_the_callee() -> None:
    port = free_port()
    endpoint = Endpoint(EndpointSettings(port=port, codecs=("PCMU",), max_calls=4), lambda leg: None)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(endpoint.close)
        await endpoint.start()
        raw = await stack.enter_async_context(RawPhone(f"127.0.0.1:{port}"))
        leg = await endpoint.call(f"sip:1@127.0.0.1:{raw.sip.port}", caller=NameAddr("100", "Desk"))
        callee = await RawCallee.wait_for_invite(raw)
        callee.reject("486 Busy Here")
        await leg.ended
        assert callee.invite.header("From").startswith('"Desk" <sip:100@127.0.0.1>')
        assert f"@127.0.0.1:{port}" in callee.invite.header("Contact")
        assert "c=IN IP4 127.0.0.1" in callee.invite.body

        known = {SipHostPort("pbx.example", None, "udp"): [SipTarget("127.0.0.1", raw.sip.port, "udp")]}
        endpoint.set_host_table(known)
        trunk = Trunk(
            key="t", host="pbx.example", port=None, transport="udp", outbound_proxy=None, user="100",
            credentials=Credentials("100", "hush"), registers=False, follow_redirects=False, accept_refer=False,
            qualify_s=0,
        )  # fmt: skip
        await endpoint.set_trunks([trunk])
        for way in (endpoint.call("sip:1@pbx.example"), endpoint.call("1", trunk=trunk)):
            leg = await way
            callee = await RawCallee.wait_for_invite(raw)
            callee.reject("486 Busy Here")
            await leg.ended
            assert "c=IN IP4 127.0.0.1" in callee.invite.body, "by the address of the host name"


@pytest.mark.parametrize(
    ("listening", "address"),
    [
        ({"host": "::1"}, "[::1]"),
        ({"host": "::", "public_address": "2001:db8::5"}, "[::1]"),
        ({"host": "::1", "public_address": "2001:db8::5", "local_networks": ()}, "[2001:db8::5]"),
    ],
    ids=["one address", "a public one, for others", "a public one"],
)
async def test_invite_has_the_local_ipv6_address(listening: dict[str, Any], address: str) -> None:
    port = free_port()
    endpoint = Endpoint(EndpointSettings(port=port, codecs=("PCMU",), max_calls=4, **listening), lambda leg: None)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(endpoint.close)
        await endpoint.start()
        raw = await stack.enter_async_context(RawPhone(f"[::1]:{port}", "::1"))
        leg = await endpoint.call(f"sip:1@[::1]:{raw.sip.port}", caller=NameAddr("100", "Desk"))
        callee = await RawCallee.wait_for_invite(raw)
        callee.reject("486 Busy Here")
        await leg.ended
        assert callee.invite.header("From").startswith(f'"Desk" <sip:100@{address}>')
        assert f"@{address}:{port}" in callee.invite.header("Contact")
        assert f"c=IN IP6 {address.strip('[]')}" in callee.invite.body
