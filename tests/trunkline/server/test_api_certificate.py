"""HTTPS of the API: the local authority that clients trust, both ports, and certificates that change while it runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from aiohttp import ClientSession

from tests.peers import chromium
from tests.peers.certificate_authority import Authority
from tests.peers.chromium import browser
from tests.peers.ports import free_port
from tests.trunkline.server_process import TRUNKLINE, Server

pytestmark = pytest.mark.asyncio(loop_scope="package")
HSTS = "Strict-Transport-Security"


@pytest_asyncio.fixture(loop_scope="package")
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server with HTTP and HTTPS, the latter with a certificate of the local authority."""
    async with Server(tmp_path, api={"https_port": free_port()}) as running:
        yield running


def https_port(server: Server) -> int:
    port: int = server.settings["api"]["https_port"]
    return port


async def downloaded_authority(server: Server, folder: Path) -> Path:
    async with ClientSession() as session, session.get(f"{server.origin}/ca.crt") as response:
        assert response.status == 200
        assert response.content_type == "application/x-x509-ca-cert"
        assert HSTS not in response.headers
        path = folder / "downloaded.crt"
        path.write_bytes(await response.read())
    return path


async def presented(port: int, authority: Path, host: str = "localhost") -> dict[str, object]:
    """The certificate that a client gets, which verifies it. Raises `ssl.SSLError`."""
    context = ssl.create_default_context(cafile=authority)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
    found: dict[str, object] = writer.get_extra_info("peercert")
    writer.transport.abort()
    return found


async def test_clients_that_trust_the_downloaded_authority_use_https_beside_http(
    server: Server, tmp_path: Path
) -> None:
    authority = await downloaded_authority(server, tmp_path)
    assert b"PRIVATE" not in authority.read_bytes()
    trusting = ssl.create_default_context(cafile=authority)
    async with ClientSession() as session:
        for host in ("localhost", "127.0.0.1"):
            async with session.get(f"https://{host}:{https_port(server)}/readyz", ssl=trusting) as response:
                assert response.status == 200
                assert HSTS not in response.headers, "it would forbid HTTP on the other port"
        async with session.get(f"{server.origin}/readyz") as response:
            assert response.status == 200
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed|unable to get"):
        await presented(https_port(server), Path(ssl.get_default_verify_paths().cafile or os.devnull))
    curl = await asyncio.create_subprocess_exec(
        "curl", "-sf", "--cacert", authority, f"https://localhost:{https_port(server)}/healthz",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert json.loads((await curl.communicate())[0]) == {"status": "ok"}


@chromium.required
async def test_a_browser_that_trusts_the_authority_has_a_secure_context(server: Server, tmp_path: Path) -> None:
    authority = await downloaded_authority(server, tmp_path)
    page = f"https://localhost:{https_port(server)}/docs"
    async with browser(authority) as (tab, _):
        await tab.open(page)
        assert await tab.evaluate("[isSecureContext, 'mediaDevices' in navigator]") == [True, True]
    async with browser() as (tab, _):
        with pytest.raises(RuntimeError, match="ERR_CERT_AUTHORITY_INVALID"):
            await tab.open(page)


async def test_a_name_that_the_command_adds_is_served_without_a_restart(server: Server, tmp_path: Path) -> None:
    authority, port = await downloaded_authority(server, tmp_path), https_port(server)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'voice\.lan'"):
        await presented(port, authority, "voice.lan")
    command = await asyncio.create_subprocess_exec(
        TRUNKLINE, "web", "certificate", "--name", "voice.lan", "--json", env=server.environment,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told = json.loads((await command.communicate())[0])
    assert command.returncode == 0
    assert "voice.lan" in told["names"]
    server.signal(signal.SIGHUP)
    await server.event("api.certificate_renewed")
    served = await presented(port, authority, "voice.lan")
    assert ssl.cert_time_to_seconds(str(served["notAfter"])) == datetime.fromisoformat(told["expiresAt"]).timestamp()


async def test_a_certificate_of_the_settings_is_replaced_and_an_unusable_one_is_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    files = authority.files("localhost", days=(-1, 5))
    assert files.certificate and files.authorities
    port = free_port()
    tls = {"https_port": port, "tls_cert": str(files.certificate), "tls_key": str(files.key)}
    async with Server(tmp_path, api=tls) as server:
        assert (await server.event("api.certificate_expires_soon"))["days_left"] == 4
        async with ClientSession() as session, session.get(f"{server.origin}/ca.crt") as response:
            assert response.status == 404
        before = await presented(port, files.authorities)
        good = files.certificate.read_bytes()
        files.certificate.write_text("-----BEGIN CERTIF")
        server.signal(signal.SIGHUP)
        assert "api.tls_cert" in (await server.event("api.certificate_not_renewed"))["why"]
        assert await presented(port, files.authorities) == before
        files.certificate.write_bytes(good)
        authority.files("localhost")
        server.signal(signal.SIGHUP)
        renewed = await server.event("api.certificate_renewed")
        assert (datetime.fromisoformat(renewed["expires"]) - datetime.now(UTC)).days == 364
        assert await presented(port, files.authorities) != before


async def test_https_alone_tells_browsers_to_stay_with_it(tmp_path: Path) -> None:
    files = Authority(tmp_path / "tls").files("localhost")
    async with Server(tmp_path, api={"tls_cert": str(files.certificate), "tls_key": str(files.key)}) as server:
        trusting = ssl.create_default_context(cafile=files.authorities)
        async with (
            ClientSession() as session,
            session.get(f"https://localhost:{server.api_port}/healthz", ssl=trusting) as response,
        ):
            assert response.headers[HSTS] == "max-age=2592000"


async def test_https_listens_on_the_address_of_the_host_setting_alone(server: Server) -> None:
    sockets = await asyncio.to_thread(psutil.net_connections, "tcp")
    listening = [tuple(each.laddr) for each in sockets if each.status == psutil.CONN_LISTEN]
    assert [host for host, port in listening if port == https_port(server)] == ["127.0.0.1"]
