"""The TLS side of an endpoint: the port that is listened on, and the certificate that it and our connections show."""

from __future__ import annotations

import socket

import structlog

from config.errors import StartupError
from sipcore import _native
from sipcore.messages.headers import printable
from sipcore.settings import EndpointSettings
from sipcore.transport.listeners import EVERYWHERE, IPV6_V6ONLY, bound_address, usual_address, versions
from sipcore.transport.tls_identity import Identity, InMemory, UnusableFile, log_end, read_identity, system_authorities

log = structlog.get_logger(__name__)


class TlsPort:
    """Use it on the owner's thread."""

    def __init__(self, settings: EndpointSettings) -> None:
        self._settings = settings
        self._memory: InMemory | None = None
        self.identity = Identity()
        """What we show."""

    def open(self) -> None:
        """Listen on `tls_port`, or just be able to connect when it is 0. Raises `StartupError`."""
        settings = self._settings
        identity = read_identity(settings.tls)
        if settings.tls_port and not identity.chain:
            raise UnusableFile("sip.tls_port needs sip.tls_cert and sip.tls_key (TRUNKLINE_SIP__TLS_CERT, ..._KEY)")
        log_end(identity)
        self._memory, self.identity = InMemory(identity), identity
        _native.tls_verify(settings.tls_verify)
        for version in versions(settings.host):
            address = bound_address(settings.host) or EVERYWHERE[version]
            self._open_one(address, usual_address(settings.host, version), self._memory)

    def renew(self) -> Identity:
        """Read the files again and use them for connections to come. Raises `UnusableFile`, and all stays as it was, or
        `OSError` when the port could not be opened again."""
        identity = read_identity(self._settings.tls)
        if self._settings.tls_port and not identity.chain:
            raise UnusableFile("sip.tls_cert and sip.tls_key are gone")
        memory = InMemory(identity)
        try:
            _native.tls_renew(_files(memory))
        except OSError:
            self._go_back()
            memory.close()
            raise
        if self._memory:
            self._memory.close()
        self._memory, self.identity = memory, identity
        log_end(identity)
        return identity

    def _go_back(self) -> None:
        """Some ports may have taken the new files already."""
        if self._memory:
            try:
                _native.tls_renew(_files(self._memory))
            except OSError as error:
                log.error("sip.tls_not_restored", why=str(error))

    def close(self) -> None:
        """PJSIP is about to end. Idempotent."""
        _native.tls_forget()
        if self._memory:
            self._memory.close()
            self._memory = None

    def log_events(self) -> None:
        """Write which connections failed since the last call, a line for each peer and cause."""
        events, more = _native.tls_events()
        for peer, why, count in events:
            log.warning("sip.tls_failed", peer=peer, why=printable(why), count=count)
        if more:
            log.warning("sip.tls_failed", peer="further peers", count=more)

    def _open_one(self, address: str, name: str, memory: InMemory) -> None:
        port = self._settings.tls_port
        try:
            if port:
                _check_free(address, port)
            _native.tls_open(address, port, name, _files(memory))
            if not _native.tls_listens():
                raise OSError("the port is not listened on")
        except OSError as error:
            raise StartupError(
                f"SIP port {port}/tls on {address} cannot be opened ({error.strerror or error}): "
                "stop the program that uses it, or set [sip] tls_port (TRUNKLINE_SIP__TLS_PORT)"
            ) from error


def _files(memory: InMemory) -> tuple[str, str, str, str]:
    return (*memory.paths, system_authorities())


def _check_free(address: str, port: int) -> None:
    """PJSIP does not say why it could not listen. Raises `OSError`."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if probe.family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, IPV6_V6ONLY, 1)
        probe.bind((address, port))
        probe.listen()
