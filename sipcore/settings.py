"""Settings of the SIP endpoint: listeners, RTP, codecs, SRTP and TLS."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Final, Literal

from config.settings_values import PRIVATE_NETWORKS

SrtpUse = Literal["off", "optional", "required"]


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the certificate chain, its key (both or neither), and private certificate authorities."""

    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None

    def stat_signature(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Modification time, size and inode of each file: changes when a file does."""
        return tuple(_stat_of(path) for path in (self.certificate, self.key, self.authorities) if path)


NO_TLS_FILES: Final = TlsFiles()


def _stat_of(path: Path) -> tuple[int, int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
    return None


@dataclass(frozen=True)
class EndpointSettings:
    """Ports are numbers of UDP (and TCP); 0 lets the system choose."""

    host: str = "0.0.0.0"
    port: int = 5060
    tcp: bool = True
    public_address: str | None = None
    rtp_first_port: int = 10000
    rtp_last_port: int = 19999
    symmetric_rtp: bool = True
    """Symmetric RTP: send to the source of the peer's RTP when it differs from the address in its SDP."""
    codecs: tuple[str, ...] = ("opus", "G722", "PCMU", "PCMA")
    max_calls: int = 250
    refuse_unknown: bool = False
    """Answer requests from unknown sources with 403 instead of not at all."""
    local_networks: tuple[IPv4Network | IPv6Network, ...] = PRIVATE_NETWORKS
    """Peers in them get our own address in SIP and SDP, others the public one."""
    media_networks: tuple[IPv4Network | IPv6Network, ...] = PRIVATE_NETWORKS
    """Networks that RTP may be sent to by a peer's SDP alone, beside the addresses of trunks; to other addresses RTP is
    sent after RTP from there."""
    srtp: SrtpUse = "off"
    tls_port: int = 0
    """0: TLS is used for outbound connections only, without a listener."""
    tls: TlsFiles = NO_TLS_FILES
    tls_verify: bool = True
    """Verify the certificates of peers that we connect to: their host name, and a trusted certificate authority."""
    session_timer_s: int = 1800
    """Session-Expires (RFC 4028): 90 or more; 0: no session timers."""
    max_invites_per_second: int = 50
    """New INVITEs of each source address; the burst is twice that."""
