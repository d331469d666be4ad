"""The certificate of HTTPS, read again when its files change: connections that are open keep the one before."""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path

from cryptography import x509

from config.errors import StartupError
from config.settings_tables import ApiSettings


class ServerCertificate:
    """The TLS context of new connections. `expires_at` is that of the server's own certificate."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Blocks. Raises `StartupError` if the files cannot be used."""
        self._files = certificate, key
        self._stamp = self._stat()
        self.context, self.expires_at = self._load()

    @classmethod
    def of_settings(cls, settings: ApiSettings) -> ServerCertificate | None:
        """The certificate of `[api] tls_cert`; None without one. Blocks. Raises `StartupError`."""
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        return cls(settings.tls_cert, settings.tls_key)

    def reload(self, *, if_changed: bool = True) -> bool:
        """Read the files again, with `if_changed` only if they are others than before; returns True if they were read.
        Blocks. Raises `StartupError` if they cannot be used; the certificate of before then stays."""
        stamp = self._stat()
        if if_changed and stamp == self._stamp:
            return False
        self._stamp = stamp
        self.context, self.expires_at = self._load()
        return True

    def _stat(self) -> tuple[tuple[int, int, int], ...]:
        stamps = []
        for path in self._files:
            try:
                status = path.stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return tuple(stamps)

    def _load(self) -> tuple[ssl.SSLContext, datetime]:
        certificate, key = self._files
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(certificate, key)
            own = x509.load_pem_x509_certificate(certificate.read_bytes())
        except (OSError, ValueError) as error:
            raise StartupError(f"api.tls_cert {certificate} with api.tls_key: {error}") from error
        return context, own.not_valid_after_utc
