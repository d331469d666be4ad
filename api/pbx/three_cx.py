"""The fields of 3CX, as in docs/how-to/pbx/3cx.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from api.pbx.screens import screen
from api.pbx.server import SipServer, shown


def by_address(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """The lines for a trunk by address, with the rules of both directions."""
    kind = number["sipProtocol"] or "udp"
    host, _, port = server.host_port(tls=kind == "tls").rpartition(":")
    general = {
        "Name": "trunkline",
        "Main Trunk Number": number["number"],
        "Type of authentication": "Do not require - IP based",
        "Registrar/Server": host,
        "Port": port,
    }
    if number["sipInboundAuth"]:
        user = number["sipAuthUser"] or number["sipUsername"]
        general |= {"Authentication ID": user, "Authentication Password": shown(password)}
    yield from screen("Voice & Chat > Add Trunk > Generic > Generic SIP Trunk", general)
    options = {"Transport Protocol": kind.upper(), "Codec Priority": "G.722, G.711"}
    if server.encrypts(kind):
        options["SRTP"] = "on"
    yield from screen("Options", options)
    yield ""
    yield from screen(
        "Outbound Rules > Add",
        {
            "Calls to numbers starting with prefix": number["number"],
            "Calls to numbers with a length of": str(len(number["number"])),
            "Route": "trunkline, Strip Digits 0",
        },
    )
    yield ""
    rule = {"DID": "the number that the agent calls", "Route to": "its extension, queue or ring group"}
    yield from screen("Inbound Rules > Add DID Rule", rule)


def registration(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """The lines for an extension, with which Trunkline registers."""
    yield from screen("Users > Add User", {"Extension": number["sipUsername"]})
    yield from screen(
        "IP Phone > Configure a Phone > I will configure the phone myself",
        {
            "Authentication ID": number["sipAuthUser"] or number["sipUsername"],
            "Authentication password": shown(password),
        },
    )
