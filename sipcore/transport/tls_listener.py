"""TLS of an endpoint: its listener, and the certificate of the listener and of outbound connections."""

from __future__ import annotations

import socket

import structlog

from config.errors import StartupError
from sipcore import _native
from sipcore.messages.headers import printable
from sipcore.settings import EndpointSettings
from sipcore.transport.listeners import IPV6_V6ONLY, WILDCARD, bound_address, default_local_address, ip_versions
from sipcore.transport.tls_identity import (
    InMemoryPem,
    TlsIdentity,
    UnusableTlsFile,
    log_expiry,
    read_identity,
    system_authorities,
)

log = structlog.get_logger(__name__)


class TlsListener:
    """The TLS listener. On the PJSIP thread only."""

    def __init__(self, settings: EndpointSettings) -> None:
        self._settings = settings
        self._pem: InMemoryPem | None = None
        self.identity = TlsIdentity()
        """The certificate in use."""

    def open(self) -> None:
        """Listen on `tls_port`, or only enable outbound connections when it is 0. Raises `StartupError`."""
        settings = self._settings
        identity = read_identity(settings.tls)
        if settings.tls_port and not identity.chain:
            raise UnusableTlsFile("sip.tls_port needs sip.tls_cert and sip.tls_key (TRUNKLINE_SIP__TLS_CERT, ..._KEY)")
        log_expiry(identity)
        self._pem, self.identity = InMemoryPem(identity), identity
        _native.tls_verify(settings.tls_verify)
        for version in ip_versions(settings.host):
            address = bound_address(settings.host) or WILDCARD[version]
            self._open_one(address, default_local_address(settings.host, version), self._pem)

    def reload(self) -> TlsIdentity:
        """Read the files again and use them for new connections. Raises `UnusableTlsFile`, and nothing changes, or
        `OSError` when the port could not be opened again."""
        identity = read_identity(self._settings.tls)
        if self._settings.tls_port and not identity.chain:
            raise UnusableTlsFile("sip.tls_cert and sip.tls_key are gone")
        pem = InMemoryPem(identity)
        try:
            _native.tls_reload(_files(pem))
        except OSError:
            self._restore()
            pem.close()
            raise
        if self._pem:
            self._pem.close()
        self._pem, self.identity = pem, identity
        log_expiry(identity)
        return identity

    def _restore(self) -> None:
        """Restore the former files, because some listeners may use the new ones."""
        if self._pem:
            try:
                _native.tls_reload(_files(self._pem))
            except OSError as error:
                log.error("sip.tls_not_restored", why=str(error))

    def close(self) -> None:
        """Close before PJSIP ends. Idempotent."""
        _native.tls_clear_listeners()
        if self._pem:
            self._pem.close()
            self._pem = None

    def log_events(self) -> None:
        """Log the connections that failed since the last call, a line for each peer and cause."""
        events, more = _native.tls_events()
        for peer, why, count in events:
            log.warning("sip.tls_failed", peer=peer, why=printable(why), count=count)
        if more:
            log.warning("sip.tls_failed", peer="further peers", count=more)

    def _open_one(self, address: str, name: str, pem: InMemoryPem) -> None:
        port = self._settings.tls_port
        try:
            if port:
                _check_free(address, port)
            _native.tls_open(address, port, name, _files(pem))
            if not _native.tls_apply_filters():
                raise OSError("the port is not listened on")
        except OSError as error:
            raise StartupError(
                f"SIP port {port}/tls on {address} cannot be opened ({error.strerror or error}): "
                "stop the program that uses it, or set [sip] tls_port (TRUNKLINE_SIP__TLS_PORT)"
            ) from error


def _files(pem: InMemoryPem) -> tuple[str, str, str, str]:
    return (*pem.paths, system_authorities())


def _check_free(address: str, port: int) -> None:
    """Check that the port is free, because PJSIP does not report why it could not listen. Raises `OSError`."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if probe.family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, IPV6_V6ONLY, 1)
        probe.bind((address, port))
        probe.listen()
