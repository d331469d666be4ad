"""The files of FreeSWITCH, as in docs/how-to/pbx/freeswitch.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import quoteattr

from api.pbx.server import SipServer, shown


def by_address(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """The lines for a trunk by address: the gateway, and the dialplan of both directions."""
    kind = number["sipProtocol"] or "udp"
    params = {"proxy": server.host_port(tls=kind == "tls"), "register": "false"}
    if kind != "udp":
        params["register-transport"] = kind
    if number["sipInboundAuth"]:
        params |= {"username": number["sipAuthUser"] or number["sipUsername"], "password": shown(password)}
    params |= {"caller-id-in-from": "true", "ping": "30"}
    gateway = (f"    <param name={quoteattr(name)} value={quoteattr(value)}/>" for name, value in params.items())
    yield from _file("sip_profiles/external/trunkline", '  <gateway name="trunkline">', *gateway, "  </gateway>")
    yield ""
    secure = ["rtp_secure_media=optional"] if server.encrypts(kind) else []
    yield from _dialplan(number, "sofia/gateway/trunkline/$1", *secure)
    yield ""
    yield from _file(
        "dialplan/public/00_trunkline",
        '  <extension name="from_trunkline">',
        f'    <condition field="network_addr" expression="^{re.escape(server.address)}$"/>',
        '    <condition field="destination_number" expression="^(10[01]\\d|200[0-2])$">',
        '      <action application="transfer" data="$1 XML default"/>',
        "    </condition>",
        "  </extension>",
    )


def registration(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """The lines for a registration: the user of the directory, and the dialplan of its extension."""
    name = number["sipUsername"]
    yield from _file(
        f"directory/default/{name.replace('--', '__')}",  # a comment has no "--"
        f"  <user id={quoteattr(name)}>",
        "    <params>",
        f'      <param name="password" value={quoteattr(shown(password))}/>',
        "    </params>",
        "    <variables>",
        '      <variable name="user_context" value="default"/>',
        "    </variables>",
        "  </user>",
    )
    yield ""
    secure = ["rtp_secure_media=optional"] if server.encrypts(number["sipRegisterTransport"] or "udp") else []
    yield from _dialplan(number, f"user/{name}", *secure)


def _dialplan(number: Mapping[str, Any], target: str, *variables: str) -> Iterator[str]:
    """The extension of the telephones' context that leads to the agent."""
    dialled = number["number"]
    actions = [("set", each) for each in ("force_transfer_context=default", *variables)] + [("bridge", target)]
    yield from _file(
        f"dialplan/default/{dialled}_trunkline",
        '  <extension name="trunkline">',
        f'    <condition field="destination_number" expression="^({re.escape(dialled)})$">',
        *(f"      <action application={quoteattr(name)} data={quoteattr(data)}/>" for name, data in actions),
        "    </condition>",
        "  </extension>",
    )


def _file(path: str, *lines: str) -> Iterator[str]:
    yield f"<!-- conf/{path}.xml -->"
    yield from ("<include>", *lines, "</include>")
