"""The fields of FreePBX, as in docs/how-to/pbx/freepbx.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from api.pbx.screens import screen
from api.pbx.server import SipServer, shown

_SRTP: Final = "SRTP via in-SDP (recommended)"


def by_address(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """The lines for a trunk by address: the trunk, and the outbound route of its extension."""
    kind = number["sipProtocol"] or "udp"
    host, _, port = server.host_port(tls=kind == "tls").rpartition(":")
    authenticates = number["sipInboundAuth"]
    general = {"Authentication": "Outbound" if authenticates else "None", "Registration": "None"}
    if authenticates:
        general |= {"Username": number["sipAuthUser"] or number["sipUsername"], "Secret": shown(password)}
    general |= {"SIP Server": host, "SIP Server Port": port, "Context": "from-pstn", "Transport": f"0.0.0.0-{kind}"}
    advanced = {"Qualify Frequency": "30"}
    if kind != "udp":
        advanced["AOR Contact"] = rf"sip:{host}:{port}\;transport={kind}"
    advanced |= {
        "Match (Permit)": server.address,
        "Trust RPID/PAI": "Yes",
        "Send RPID/PAI": "Send P-Asserted-Identity header",
        "Direct Media": "No",
    }
    if server.encrypts(kind):
        advanced["Media Encryption"] = _SRTP
    yield from screen("Connectivity > Trunks > Add Trunk > Add SIP (chan_pjsip) Trunk", {"Trunk Name": "trunkline"})
    yield from screen("pjsip Settings > General", general)
    yield from screen("pjsip Settings > Advanced", advanced)
    yield from screen("pjsip Settings > Codecs", {"Checked, in this order": "g722, ulaw, alaw"})
    yield ""
    yield from screen(
        "Connectivity > Outbound Routes > Add Outbound Route",
        {
            "Route Name": "trunkline",
            "Trunk Sequence for Matched Routes": "trunkline",
            "Dial Patterns, match pattern": number["number"],
        },
    )


def registration(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """The lines for an extension, with which Trunkline registers."""
    kind = number["sipRegisterTransport"] or "udp"
    title = "Connectivity > Extensions > Add Extension > Add New SIP [chan_pjsip] Extension"
    fields = {"User Extension": number["sipUsername"], "Display Name": "Trunkline", "Secret": shown(password)}
    yield from screen(title, fields)
    advanced = {"DTMF Signaling": "RFC 4733", "Trust RPID": "Yes", "Direct Media": "No"}
    if server.encrypts(kind):
        advanced["Media Encryption"] = _SRTP
    yield from screen("Advanced", advanced)
