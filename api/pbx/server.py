"""This server as a PBX reaches it."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from config.settings import Settings

SIP_PORT: Final = 5060
SIPS_PORT: Final = 5061
PASSWORD: Final = "..."
"""In place of a password that the operator has not just given."""
_SOMEWHERE: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses (RFC 5737, RFC 3849) to which nothing is sent: they have the default route."""


@dataclass(frozen=True)
class SipServer:
    """Where a PBX reaches this server, and whether audio is encrypted. `tls_port` 0: there is none."""

    address: str
    port: int
    tls_port: int
    srtp: Literal["off", "optional", "required"]

    @classmethod
    def of(cls, settings: Settings, pbx: str) -> SipServer:
        """Returns this server, as the PBX with this address or host name reaches it."""
        sip = settings.sip
        if sip.public_address is not None:
            address = str(sip.public_address)
        elif not ip_address(sip.host).is_unspecified:
            address = sip.host
        else:
            address = _local_address(pbx)
        return cls(address, sip.port or SIP_PORT, sip.tls_port, sip.srtp)

    def host_port(self, *, tls: bool) -> str:
        """The host and port of a SIP URI."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{(self.tls_port or SIPS_PORT) if tls else self.port}"

    def encrypts(self, kind: str) -> bool:
        """Whether calls over a trunk with this transport (udp, tcp, tls) have SRTP."""
        return self.srtp == "required" or (kind == "tls" and self.srtp == "optional")


def _local_address(pbx: str) -> str:
    """The address that packets to the PBX come from; of a host name, those to the internet. Sends nothing."""
    try:
        target = str(ip_address(pbx))
    except ValueError:
        target = _SOMEWHERE[socket.AF_INET]
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    for each in (target, _SOMEWHERE[family]):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((each, SIP_PORT))
            except OSError:
                continue
            return str(probe.getsockname()[0])
    return "127.0.0.1" if family == socket.AF_INET else "::1"


def shown(password: str | None) -> str:
    """The password as it is printed: as it was given, or in place of it dots that show where it goes."""
    return PASSWORD if password is None or not password.isprintable() else password
