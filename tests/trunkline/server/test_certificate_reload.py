"""The certificate of SIP over TLS: at the start, when it is renewed, and in `trunkline check`."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import cast

import pytest

from config.settings import Settings
from sipcore.endpoint import Endpoint as RealEndpoint
from sipcore.transport.tls_identity import TlsIdentity, read_identity
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.raw.raw_tls import Connection, client_context
from tests.trunkline.server_process import Server
from trunkline.check import check
from trunkline.server.certificate_reload import CertificateReloader

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "tls")


async def test_sighup_reloads_the_certificate_and_keeps_the_current_one_if_the_new_file_is_unusable(
    tmp_path: Path, authority: Authority
) -> None:
    files, port = authority.files("localhost", days=(-1, 5)), free_port()
    tls = {"tls_port": port, "tls_cert": str(files.certificate), "tls_key": str(files.key)}
    async with Server(tmp_path, sip={**tls, "probes": '["127.0.0.1"]'}) as server:
        assert (await server.event("ready"))["tls"] == port
        assert (await server.event("sip.certificate_expires_soon"))["days_left"] == 4
        before = await Connection.connect("127.0.0.1", port, client_context(files))

        assert files.certificate
        good = files.certificate.read_bytes()
        files.certificate.write_text("-----BEGIN CERTIF")
        server.signal(signal.SIGHUP)
        refusal = await server.event("sip.certificate_not_renewed")
        assert "holds no certificate in PEM form" in refusal["why"]
        still = await Connection.connect("127.0.0.1", port, client_context(files))
        assert still.tls.getpeercert(True) == before.tls.getpeercert(True)
        files.certificate.write_bytes(good)

        authority.files("localhost")
        server.signal(signal.SIGHUP)
        assert (await server.event("sip.certificate_renewed"))["days_left"] == 364
        after = await Connection.connect("127.0.0.1", port, client_context(files))
        assert after.tls.getpeercert(True) != before.tls.getpeercert(True)
        async with RawPhone(server.target) as raw:
            for connection in (before, still, after):
                connection.writer.write(raw.request("OPTIONS", raw.dialog(), via="TLS"))
                assert (await connection.next_message()).status == 200
                connection.close()


async def test_a_changed_certificate_file_is_reloaded_without_a_signal(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.server.certificate_reload.CHECK_EVERY_S", 0.01)
    files = authority.files("localhost")
    identity, renewed = await asyncio.to_thread(read_identity, files), asyncio.Event()

    class Endpoint:
        """As much of one as the reloading sees."""

        tls_files = files
        certificate = identity

        async def reload_certificate(self) -> TlsIdentity:
            renewed.set()
            return identity

    reloading = asyncio.create_task(CertificateReloader(cast(RealEndpoint, Endpoint())).run())
    with pytest.raises(TimeoutError):  # it has checked a few times
        await asyncio.wait_for(renewed.wait(), 0.1)
    authority.files("localhost")
    await asyncio.wait_for(renewed.wait(), 5)
    reloading.cancel()


def settings_of(tmp_path: Path, **sip: object) -> Settings:
    return Settings(data_dir=tmp_path).with_changes({"sip": {"host": "127.0.0.1", **sip}})


async def test_check_shows_the_names_and_the_days_left_of_the_certificate(tmp_path: Path, authority: Authority) -> None:
    files = authority.files("sip.example.test", "192.0.2.7", days=(-1, 30.5))
    tls = {"tls_port": free_port(), "tls_cert": files.certificate, "tls_key": files.key}
    line = await check._sip_over_tls(settings_of(tmp_path, **tls))
    assert line.endswith("free, certificate for sip.example.test, 192.0.2.7, 30 days left")


async def test_check_shows_that_tls_is_outbound_only_without_a_certificate(tmp_path: Path) -> None:
    assert "no TLS port is open" in await check._sip_over_tls(settings_of(tmp_path))


@pytest.mark.parametrize(
    ("days", "complaint"),
    [((-9, -1), r"the certificate .*server\.pem expired on \d{4}-"), (None, "needs sip.tls_cert")],
)
async def test_check_fails_without_a_valid_certificate(
    tmp_path: Path, authority: Authority, days: tuple[float, float] | None, complaint: str
) -> None:
    tls: dict[str, object] = {"tls_port": free_port()}
    if days:
        files = authority.files("localhost", days=days)
        tls |= {"tls_cert": files.certificate, "tls_key": files.key}
    with pytest.raises(OSError, match=complaint):
        await check._sip_over_tls(settings_of(tmp_path, **tls))
