"""The settings of SIP and RTP as the endpoint takes them."""

from __future__ import annotations

from config.settings import Settings
from sipcore.settings import EndpointSettings, TlsFiles


def endpoint_settings(settings: Settings) -> EndpointSettings:
    """What the endpoint needs to know."""
    sip = settings.sip
    first, last = sip.rtp_port_range
    return EndpointSettings(
        host=sip.host,
        port=sip.port,
        tcp=sip.tcp,
        srtp=sip.srtp,
        tls_port=sip.tls_port,
        tls=TlsFiles(sip.tls_cert, sip.tls_key, sip.tls_ca),
        tls_verify=sip.tls_verify,
        local_networks=sip.local_networks,
        media_networks=sip.media_networks,
        public_address=str(sip.public_address) if sip.public_address else None,
        rtp_first_port=first,
        rtp_last_port=last,
        symmetric_rtp=sip.symmetric_rtp,
        codecs=sip.codecs,
        max_calls=settings.limits.max_calls,
        refuse_unknown=sip.unknown_source == "403",
        session_timer_s=sip.session_timer_s,
        max_invites_per_second=sip.max_invites_per_second,
    )
