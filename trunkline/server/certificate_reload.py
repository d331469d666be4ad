"""Certificate reload: SIP over TLS uses a certificate that was renewed on disk without a restart."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from config.clock import utc_now
from sipcore.endpoint import Endpoint
from sipcore.transport.tls_identity import UnusableTlsFile, log_expiry

CHECK_EVERY_S: Final = 60.0
"""Between two checks of the certificate and key files."""

log = structlog.get_logger()


class CertificateReloader:
    """Reloads the certificate when its files have changed; `reload` does so at once, changed or not (SIGHUP)."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._requested = asyncio.Event()

    def reload(self) -> None:
        """Request a reload; returns at once."""
        self._requested.set()

    async def run(self) -> None:
        """Check the files until cancelled. While a file is unusable, the current certificate stays in use; the days to
        its expiry are logged once a day."""
        files = self._endpoint.tls_files
        loaded_stamp, day = await asyncio.to_thread(files.stat_signature), utc_now().date()
        while True:
            requested = await self._wait()
            stamp = await asyncio.to_thread(files.stat_signature)
            if requested or stamp != loaded_stamp:
                loaded_stamp = stamp
                await self._renew()
            if utc_now().date() != day:
                day = utc_now().date()
                log_expiry(self._endpoint.certificate)

    async def _wait(self) -> bool:
        """Wait for the next check; returns True if a reload was requested."""
        try:
            async with asyncio.timeout(CHECK_EVERY_S):
                await self._requested.wait()
        except TimeoutError:
            return False
        self._requested.clear()
        return True

    async def _renew(self) -> None:
        try:
            identity = await self._endpoint.reload_certificate()
        except UnusableTlsFile as error:
            log.error("sip.certificate_not_renewed", why=str(error))
        except OSError as error:
            log.error("sip.tls_port_lost", why=str(error))
        else:
            log.info("sip.certificate_renewed", names=identity.names, days_left=identity.days_left(utc_now()))
