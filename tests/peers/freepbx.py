"""What FreePBX (module core, driver PJSip) writes for Asterisk from the fields of its screens."""

from __future__ import annotations

from collections.abc import Mapping

Fields = Mapping[str, str]
_TRANSPORT = """
[{name}]
type=transport
protocol={protocol}
bind=127.0.0.1:{{port}}
allow_reload=no
tos=cs3
cos=3
"""
_PJSIP = """
#include pjsip.transports.conf
#include pjsip.endpoint.conf
#include pjsip.aor.conf
#include pjsip.auth.conf
#include pjsip.registration.conf
#include pjsip.identify.conf
[global]
type=global
user_agent=FPBX-17.0(22.0)
endpoint_identifier_order=ip,username,anonymous,header,auth_username
"""
_YES_NO = {"Yes": "yes", "No": "no"}


def trunk(fields: Fields) -> dict[str, str]:
    """The files for a chan_pjsip trunk without registration, from all fields of its screens."""
    name, context, transport = fields["Trunk Name"], fields["Context"], fields["Transport"]
    authenticates = fields["Authentication"] == "Outbound"
    server = f"{fields['SIP Server']}:{fields['SIP Server Port']}"
    user = f"{fields['Username']}@" if authenticates else ""
    sends_pai = fields["Send RPID/PAI"] == "Send P-Asserted-Identity header"
    assert fields["Registration"] == "None" and fields["Authentication"] in ("None", "Outbound")
    return {
        **_shared(transport),
        "pjsip.endpoint.conf": _section(
            name, type="endpoint", transport=transport, context=context, disallow="all",
            allow=fields["Checked, in this order"].replace(" ", ""), aors=name, language="en",
            outbound_auth=name if authenticates else None, t38_udptl="no", t38_udptl_ec="none", fax_detect="no",
            trust_id_inbound=_YES_NO[fields["Trust RPID/PAI"]], t38_udptl_nat="no",
            send_pai="yes" if sends_pai else None, direct_media="no" if fields["Direct Media"] == "No" else None,
            rtp_symmetric="yes", dtmf_mode="auto",
        ),
        "pjsip.aor.conf": _section(
            name, type="aor", qualify_frequency=fields["Qualify Frequency"],
            contact=fields.get("AOR Contact", f"sip:{user}{server}"),
        ),
        "pjsip.auth.conf": _section(
            name, type="auth", auth_type="userpass", password=fields.get("Secret", ""),
            username=fields.get("Username", name),
        ),
        "pjsip.identify.conf": _section(
            name, type="identify", endpoint=name, match=fields.get("Match (Permit)", fields["SIP Server"])
        ),
    }  # fmt: skip


def extension(fields: Fields) -> dict[str, str]:
    """The files for a chan_pjsip extension."""
    number, codes = fields["User Extension"], {"RFC 4733": "rfc4733"}
    return {
        **_shared("0.0.0.0-udp"),
        "pjsip.endpoint.conf": _section(
            number, type="endpoint", aors=number, auth=f"{number}-auth", tos_audio="ef", tos_video="af41",
            cos_audio="5", cos_video="4", allow="ulaw,alaw,gsm,g726,g722", context="from-internal",
            callerid=f"{fields['Display Name']} <{number}>", dtmf_mode=codes[fields["DTMF Signaling"]],
            aggregate_mwi="yes", use_avpf="no", rtcp_mux="no", bundle="no", ice_support="no",
            media_use_received_transport="no", trust_id_inbound=_YES_NO[fields["Trust RPID"]], media_encryption="no",
            timers="yes", media_encryption_optimistic="no", rtp_symmetric="yes", rewrite_contact="yes",
            force_rport="yes", language="en",
        ),
        "pjsip.aor.conf": _section(
            number, type="aor", max_contacts="1", remove_existing="yes", maximum_expiration="7200",
            minimum_expiration="60", qualify_frequency="60",
        ),
        "pjsip.auth.conf": _section(
            f"{number}-auth", type="auth", auth_type="userpass", password=fields["Secret"], username=number
        ),
        "pjsip.identify.conf": _section(f"{number}-identify", type="identify", endpoint=number),
    }  # fmt: skip


def _shared(transport: str) -> dict[str, str]:
    protocol = transport.rpartition("-")[2]
    return {
        "pjsip.conf": _PJSIP,
        "pjsip.transports.conf": _TRANSPORT.format(name=transport, protocol=protocol),
        "pjsip.registration.conf": "",
    }


def _section(name: str, **values: str | None) -> str:
    lines = (f"{key}={value}" for key, value in values.items() if value is not None)
    return "\n".join((f"[{name}]", *lines, ""))
