"""The sections of pjsip.conf and extensions.conf that Asterisk needs, as in docs/how-to/pbx/asterisk.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from api.pbx.server import SIP_PORT, SIPS_PORT, SipServer, shown

_KEYS: Final = "/etc/asterisk/keys"
_POSIX_SPECIAL: Final = re.compile(r"[\]\[.{}()*+?^$|\\]")
_BACKSLASHED: Final = r"\\\g<0>"


def by_address(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """The lines for a trunk by address."""
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
    yield from ("", *_extensions(number))


def registration(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """The lines for a registration. Asterisk finds its sections by the user, whom REGISTER and calls have in `From`."""
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
    yield from ("", *_extensions(number))


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
    if server.encrypts(kind):
        yield "media_encryption=sdes"


def _auth(name: str, number: Mapping[str, Any], password: str | None) -> Iterator[str]:
    yield from ("", f"[{name}]", "type=auth", "auth_type=userpass")
    yield f"username={_escaped(number['sipAuthUser'] or number['sipUsername'])}"
    yield f"password={_escaped(shown(password))}"


def _extensions(number: Mapping[str, Any]) -> Iterator[str]:
    dialled = number["number"]
    endpoint = number["sipUsername"] if number["sipMode"] == "registration" else "${EXTEN}@trunkline"
    yield "; extensions.conf"
    yield from ("[phones]", f"exten => {dialled},1,Dial(PJSIP/{endpoint},45)", "", "[from-trunkline]")
    yield from ("exten => _X.,1,Dial(PJSIP/${EXTEN},45)", "exten => _+X.,1,Goto(${EXTEN:1},1)")


def _escaped(text: str) -> str:
    """A value of Asterisk's configuration, in which a semicolon begins a comment."""
    return text.replace(";", r"\;")
