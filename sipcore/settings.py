"""Where the endpoint listens and what it speaks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Final, Literal

from config.setting_values import PRIVATE_NETWORKS

SrtpUse = Literal["off", "optional", "required"]


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the certificate with its chain, its key (both or none), and a private certificate authority's."""

    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None

    def stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Changes when one of the files does."""
        return tuple(_stamp(path) for path in (self.certificate, self.key, self.authorities) if path)


NO_TLS_FILES: Final = TlsFiles()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino
    return None


@dataclass(frozen=True)
class EndpointSettings:
    """Where to listen and what to speak. Ports are UDP (and TCP) numbers, 0 lets the system choose."""

    host: str = "0.0.0.0"
    port: int = 5060
    tcp: bool = True
    public_address: str | None = None
    rtp_first_port: int = 10000
    rtp_last_port: int = 19999
    symmetric_rtp: bool = True
    """Send RTP to where the peer's comes from, when that is not where its SDP says."""
    codecs: tuple[str, ...] = ("opus", "G722", "PCMU", "PCMA")
    max_calls: int = 250
    refuse_unknown: bool = False
    """403 for requests from unknown sources instead of silence."""
    local_networks: tuple[IPv4Network | IPv6Network, ...] = PRIVATE_NETWORKS
    """Peers in them are told our own address, others the public one."""
    media_networks: tuple[IPv4Network | IPv6Network, ...] = PRIVATE_NETWORKS
    """Where a peer's SDP may want sound to go, beside the addresses of trunks; elsewhere only what speaks first is
    spoken to."""
    srtp: SrtpUse = "off"
    tls_port: int = 0
    """0: TLS is used for connections that we make, and nobody can make one to us."""
    tls: TlsFiles = NO_TLS_FILES
    tls_verify: bool = True
    """Peers that we connect to must have a certificate for their name, from an authority that we trust."""
    session_timer_s: int = 1800
    """How often a call's peers show that they are still there (RFC 4028): 90 or more, 0: not at all."""
    max_invites_per_second: int = 50
    """New INVITEs of each source address; twice as many may come at once."""
