"""The PBX's side of a phone number: the sections that Asterisk needs, as in docs/how-to/pbx/asterisk.md."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from config.settings import Settings

SIP_PORT: Final = 5060
SIPS_PORT: Final = 5061
PASSWORD: Final = "..."
"""In place of a password that the operator has not just given."""
_SOMEWHERE: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses (RFC 5737, RFC 3849) to which nothing is sent: they have the default route."""
_KEYS: Final = "/etc/asterisk/keys"
_POSIX_SPECIAL: Final = re.compile(r"[\]\[.{}()*+?^$|\\]")
_BACKSLASHED: Final = r"\\\g<0>"


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


def asterisk_sections(number: Mapping[str, Any], server: SipServer, password: str | None = None) -> str | None:
    """Returns pjsip.conf and extensions.conf for a phone number of the API; None if its trunk is not set up. `password`
    is that of the number, if it may be shown."""
    match number["sipMode"]:
        case "registration":
            lines = _registration(number, server, password)
        case "ip_allowlist":
            lines = _by_address(number, server, password)
        case _:
            return None
    return "\n".join((*lines, "", *_extensions(number))) + "\n"


def _by_address(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    kind = number["sipProtocol"] or "udp"
    tls, authenticates = kind == "tls", number["sipInboundAuth"]
    uri = f"sip:{server.host_port(tls=tls)}{'' if kind == 'udp' else f';transport={kind}'}"
    yield from _global()
    yield from _transport(kind, verifies=True)
    yield from _endpoint("trunkline", kind, "identify_by=ip", "aors=trunkline")
    if authenticates:
        yield "outbound_auth=trunkline"
    yield "direct_media=no"
    yield "dtmf_mode=rfc4733"
    yield "send_pai=yes"
    yield from _media_encryption(kind, server)
    yield from ("", "[trunkline]", "type=aor", f"contact={_escaped(uri)}", "qualify_frequency=30")
    if authenticates:
        yield from _auth("trunkline", number, password)
    yield from ("", "[trunkline]", "type=identify", "endpoint=trunkline", f"match={server.address}")


def _registration(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """Asterisk finds the sections of a registration by the user's name, which REGISTER and calls have in `From`."""
    kind = number["sipRegisterTransport"] or "udp"
    name = number["sipUsername"]
    yield from _global()
    yield from _transport(kind, verifies=False)
    references = (f"auth={_escaped(name)}", f"aors={_escaped(name)}")
    yield from _endpoint(name, kind, "identify_by=header,username", *references)
    yield "direct_media=no"
    yield "dtmf_mode=rfc4733"
    yield "trust_id_inbound=yes"
    yield from _media_encryption(kind, server)
    if kind != "udp":
        yield "rewrite_contact=yes"
    yield from _auth(name, number, password)
    yield from ("", f"[{name}]", "type=aor", "max_contacts=1", "remove_existing=yes")
    yield from ("", f"[{name}]", "type=identify", f"endpoint={_escaped(name)}")
    yield f"match_header=From: /<sips?:{_escaped(_POSIX_SPECIAL.sub(_BACKSLASHED, name))}@/"


def _global() -> Iterator[str]:
    """The order that lets a registration and a trunk by address from one address exist side by side."""
    yield "; pjsip.conf"
    yield from ("[global]", "type=global", "endpoint_identifier_order=header,ip,username,anonymous", "")


def _transport(kind: str, *, verifies: bool) -> Iterator[str]:
    """`verifies`: Asterisk connects to this server, and verifies its certificate."""
    yield f"[transport-{kind}]"
    yield from ("type=transport", f"protocol={kind}", f"bind=0.0.0.0:{SIPS_PORT if kind == 'tls' else SIP_PORT}")
    if kind == "tls":
        yield from ("method=tlsv1_2", f"cert_file={_KEYS}/asterisk.crt", f"priv_key_file={_KEYS}/asterisk.key")
    if kind == "tls" and verifies:
        yield from (f"ca_list_file={_KEYS}/ca.crt", "verify_server=yes")


def _endpoint(name: str, kind: str, *references: str) -> Iterator[str]:
    yield from ("", f"[{name}]", "type=endpoint", f"transport=transport-{kind}", "context=from-trunkline")
    yield from ("disallow=all", "allow=g722,ulaw,alaw", *references)


def _media_encryption(kind: str, server: SipServer) -> Iterator[str]:
    if server.srtp == "required" or (kind == "tls" and server.srtp == "optional"):
        yield "media_encryption=sdes"


def _auth(name: str, number: Mapping[str, Any], password: str | None) -> Iterator[str]:
    yield from ("", f"[{name}]", "type=auth", "auth_type=userpass")
    yield f"username={_escaped(number['sipAuthUser'] or number['sipUsername'])}"
    yield f"password={PASSWORD if password is None or not password.isprintable() else _escaped(password)}"


def _extensions(number: Mapping[str, Any]) -> Iterator[str]:
    dialled = number["number"]
    endpoint = number["sipUsername"] if number["sipMode"] == "registration" else "${EXTEN}@trunkline"
    yield "; extensions.conf"
    yield from ("[phones]", f"exten => {dialled},1,Dial(PJSIP/{endpoint},45)", "", "[from-trunkline]")
    yield from ("exten => _X.,1,Dial(PJSIP/${EXTEN},45)", "exten => _+X.,1,Goto(${EXTEN:1},1)")


def _escaped(text: str) -> str:
    """A value of Asterisk's configuration, in which a semicolon begins a comment."""
    return text.replace(";", r"\;")
