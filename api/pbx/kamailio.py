"""The files of Kamailio, as in docs/how-to/pbx/kamailio.md."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from string import Template
from typing import Any, Final

from api.pbx.server import SIP_PORT, SIPS_PORT, SipServer, shown
from storage.phone_numbers.sip_sources import normal_host

PBX: Final = "PBX-ADDRESS"
"""Where Kamailio sends the calls of the agents, which Trunkline does not know."""
_CONFIGURATION: Final = Template("""\
#!KAMAILIO
children=4
listen=$listen
auto_aliases=no
$tls
loadmodule "tm.so"
loadmodule "sl.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "maxfwd.so"
loadmodule "textops.so"
loadmodule "siputils.so"
loadmodule "dispatcher.so"

modparam("tm", "fr_timer", 2000)
modparam("dispatcher", "list_file", "/etc/kamailio/dispatcher.list")
modparam("dispatcher", "flags", 2)
modparam("dispatcher", "ds_ping_interval", 10)
modparam("dispatcher", "ds_probing_mode", 1)
modparam("dispatcher", "ds_probing_threshold", 1)
modparam("dispatcher", "ds_inactive_threshold", 1)

request_route {
    if (!mf_process_maxfwd_header("10")) { sl_send_reply("483", "Too Many Hops"); exit; }
    if (is_method("CANCEL")) { if (t_check_trans()) { t_relay(); } exit; }
    if (has_totag()) {
        if (loose_route() || !is_method("ACK") || t_check_trans()) { t_relay(); }
        exit;
    }
    t_check_trans();
    if (is_method("OPTIONS")) { sl_send_reply("200", "OK"); exit; }
    if (!is_method("INVITE")) { sl_send_reply("405", "Method Not Allowed"); exit; }
    record_route();
    if (ds_is_from_list($from_list)) {
        $$du = "sip:$pbx:5060";
        t_relay();
        exit;
    }
    if (!ds_select_dst("1", "4")) { sl_send_reply("503", "No agent server answers"); exit; }
    t_on_failure("NEXT");
    t_relay();
}

failure_route[NEXT] {
    if (t_is_canceled() || !t_check_status("503|408")) { exit; }
    if (ds_next_dst()) { t_on_failure("NEXT"); t_relay(); exit; }
    t_reply("503", "No agent server has room");
}""")
_TLS: Final = """\
enable_tls=yes
loadmodule "tls.so"
modparam("tls", "tls_method", "TLSv1.2+")
modparam("tls", "certificate", "/etc/kamailio/tls/kamailio.pem")
modparam("tls", "private_key", "/etc/kamailio/tls/kamailio.key")
modparam("tls", "ca_list", "/etc/kamailio/tls/ca.pem")
"""


def by_address(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """The lines for Kamailio at the trunk's address; its PBX has the address `PBX`."""
    kind = number["sipProtocol"] or "udp"
    port = number["sipPort"] or (SIPS_PORT if kind == "tls" else SIP_PORT)
    listen = [f"{kind}:{_host(number['sipIp'])}:{port}"]
    if kind != "udp":
        listen.insert(0, f"udp:{_host(number['sipIp'])}:{SIP_PORT}")
    yield "# kamailio.cfg"
    yield _CONFIGURATION.substitute(
        listen="\nlisten=".join(listen),
        tls=_TLS if kind == "tls" else "",
        from_list='"1"' if kind == "udp" else '"1", "1"',
        pbx=PBX,
    )
    yield from ("", "# /etc/kamailio/dispatcher.list")
    yield f"1 sip:{server.host_port(tls=kind == 'tls')}{'' if kind == 'udp' else f';transport={kind}'}"


def registration(number: Mapping[str, Any], server: SipServer, password: str | None) -> Iterator[str]:
    """The command that adds the user to a Kamailio that is a registrar with a database."""
    yield '# a Kamailio with usrloc, registrar and auth_db; calls to the user by lookup("location")'
    user = number["sipAuthUser"] or number["sipUsername"]
    yield shlex.join(["kamctl", "add", f"{user}@{normal_host(number['sipProxy'])}", shown(password)])


def _host(text: str) -> str:
    return f"[{text}]" if ":" in text else text
