"""SIP over TLS with other settings than the default."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest

from config.errors import StartupError
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings, TlsFiles
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.transport.test_tls import end_of_call


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def test_verification_can_be_turned_off(tmp_path: Path) -> None:
    async with Phone(EndpointSettings(codecs=("PCMU",), max_calls=2, tls_verify=False)) as phone:
        assert await end_of_call(phone, Authority(tmp_path, "Nobody").files("other.test")) == (None, "")


async def test_without_a_tls_port_only_outbound_connections_are_possible(authority: Authority) -> None:
    settings = EndpointSettings(codecs=("PCMU",), max_calls=2, tls=TlsFiles(authorities=authority.root))
    before = listening_ports()
    async with Phone(settings) as phone:
        assert await end_of_call(phone, authority.files("127.0.0.1", file="carrier")) == (None, "")
        (port,) = listening_ports() - before - {phone.settings.port}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await asyncio.open_connection("127.0.0.1", port)


def listening_ports() -> set[int]:
    """The TCP ports of this process."""
    ports = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            own = socket.socket(fileno=os.dup(int(name)))
            with own:
                if own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    ports.add(own.getsockname()[1])
    return ports


async def test_tls_port_in_use_raises_startup_error_with_the_setting(authority: Authority) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port := free_port()))
        other.listen()
        settings = EndpointSettings("127.0.0.1", 0, max_calls=2, tls_port=port, tls=authority.files("localhost"))
        with pytest.raises(StartupError, match=rf"^SIP port {port}/tls on 127\.0\.0\.1 cannot be opened \(.*TLS_PORT"):
            await Endpoint(settings, lambda leg: None).start()
