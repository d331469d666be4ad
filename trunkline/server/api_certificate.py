"""The certificate of HTTPS: made when the server starts, and replaced without a restart when its files change, or when
the one of the local authority is to be renewed."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Final

import structlog

from api.serving.server_certificate import ServerCertificate
from config.clock import utc_now
from config.errors import StartupError
from config.settings import Settings
from sipcore.transport.tls_identity import EXPIRES_SOON_DAYS
from trunkline.certificates import local_certificate

CHECK_EVERY_S: Final = 60.0
"""Between two checks of the files, and of the machine's names and addresses."""

log = structlog.get_logger()


class ApiCertificate:
    """Keeps the certificate of the API valid; `reload` reads its files at once, changed or not (SIGHUP)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_local = settings.api.tls_cert is None
        self._requested = asyncio.Event()
        self._left_out = ""
        self._warned_on: date | None = None
        self.in_use: ServerCertificate | None = None

    async def open(self) -> None:
        """Load the certificate, if the settings have HTTPS. Raises `StartupError`."""
        self.in_use = await asyncio.to_thread(self._load)
        self._warn_of_expiry()

    def reload(self) -> None:
        """Request a reload; returns at once."""
        self._requested.set()

    async def run(self) -> None:
        """Check until cancelled. While a file is unusable, the certificate of before stays in use."""
        while True:
            requested = await self._wait()
            if self.in_use is not None:
                await self._check(self.in_use, requested=requested)
                self._warn_of_expiry()

    async def _check(self, certificate: ServerCertificate, *, requested: bool) -> None:
        try:
            if self._is_local:
                await asyncio.to_thread(self._ensure_local)
            if await asyncio.to_thread(certificate.reload, if_changed=not requested):
                log.info("api.certificate_renewed", expires=certificate.expires_at.isoformat())
        except StartupError as error:
            log.error("api.certificate_not_renewed", why=str(error))

    def _load(self) -> ServerCertificate | None:
        settings = self._settings
        if self._is_local and not settings.api.https_port:
            return None
        if not self._is_local:
            return ServerCertificate.of_settings(settings.api)
        self._ensure_local()
        return ServerCertificate(settings.local_certificate_file, settings.local_certificate_file)

    def _ensure_local(self) -> None:
        made = local_certificate.ensure(self._settings, utc_now())
        if made.renewed:
            log.info("api.certificate_issued", names=str(made.server.names), authority=made.authority.fingerprint)
        left_out = str(made.left_out) if made.left_out else ""
        if left_out and left_out != self._left_out:
            log.warning("api.certificate_lacks_names", names=left_out, remedy="trunkline web certificate")
        self._left_out = left_out

    def _warn_of_expiry(self) -> None:
        """Once a day."""
        now = utc_now()
        if self.in_use is None or self._warned_on == now.date():
            return
        days = (self.in_use.expires_at - now).days
        if days < EXPIRES_SOON_DAYS:
            self._warned_on = now.date()
            event = "api.certificate_expired" if days < 0 else "api.certificate_expires_soon"
            log.warning(event, days_left=days)

    async def _wait(self) -> bool:
        """Wait for the next check; returns True if a reload was requested."""
        try:
            async with asyncio.timeout(CHECK_EVERY_S):
                await self._requested.wait()
        except TimeoutError:
            return False
        self._requested.clear()
        return True
