"""Certificates that are renewed on disk are taken without a restart."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from sipcore.endpoint import Endpoint
from sipcore.transport.tls_identity import UnusableTlsFile, log_expiry, now

LOOK_S: Final = 60.0
"""Between two looks at the files of SIP over TLS."""

log = structlog.get_logger()


class CertificateReloader:
    """Follows the files; `look` does so at once (SIGHUP), and reads them even if they look the same."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._asked = asyncio.Event()

    def look(self) -> None:
        """Read the files again."""
        self._asked.set()

    async def run(self) -> None:
        """Until cancelled. While a file cannot be used, the certificate of before stays."""
        files = self._endpoint.tls_files
        seen, day = await asyncio.to_thread(files.stamp), now().date()
        while True:
            asked = await self._wait()
            stamp = await asyncio.to_thread(files.stamp)
            if asked or stamp != seen:
                seen = stamp
                await self._renew()
            if now().date() != day:
                day = now().date()
                log_expiry(self._endpoint.certificate)

    async def _wait(self) -> bool:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._asked.wait()
        except TimeoutError:
            return False
        self._asked.clear()
        return True

    async def _renew(self) -> None:
        try:
            identity = await self._endpoint.renew_certificate()
        except UnusableTlsFile as problem:
            log.error("sip.certificate_not_renewed", why=str(problem))
        except OSError as error:
            log.error("sip.tls_port_lost", why=str(error))
        else:
            log.info("sip.certificate_renewed", names=identity.names, days_left=identity.days_left(now()))
