"""pjsua2's accounts: the endpoint's identity towards peers, and the media settings of calls."""

from __future__ import annotations

from collections.abc import Callable

import pjsua2 as pj

from sipcore.messages.headers import bracketed
from sipcore.settings import EndpointSettings, SrtpUse
from sipcore.transport.listeners import IPV6_ONLY, bound_address, default_local_address
from sipcore.trunks.trunk import Trunk
from sipcore.trunks.trunk_uris import identity_uri

MIN_SE_S = 90
"""Min-SE (RFC 4028 5): a request for a shorter session gets 422."""


class TrunkAccount(pj.Account):  # type: ignore[misc]
    """The shared account of trunks, which receives every INVITE that the guard admits; or a trunk's own account for its
    outbound calls."""

    def __init__(self, on_incoming: Callable[[pj.Account, pj.OnIncomingCallParam], None]) -> None:
        super().__init__()
        self._on_incoming = on_incoming

    def onIncomingCall(self, prm: pj.OnIncomingCallParam) -> None:
        """A new INVITE; on a thread of PJSIP."""
        self._on_incoming(self, prm)


def account_config(settings: EndpointSettings, version: int = 4) -> pj.AccountConfig:
    """The configuration of the account of inbound calls, with the RTP ports of the settings. `version`: the IP
    version of RTP, independent of that of SIP."""
    config = pj.AccountConfig()
    config.idUri = f"sip:trunkline@{bracketed(settings.public_address or settings.host)}"
    config.natConfig.contactRewriteUse = 0
    config.natConfig.viaRewriteUse = False
    config.natConfig.sdpNatRewriteUse = False
    config.natConfig.sipOutboundUse = 0  # RFC 5626 is not supported, as `ob` in Contact would claim
    config.natConfig.contactUseSrcPort = 0  # peers can reach the port that we listen on, however a connection ends
    config.callConfig.prackUse = pj.PJSUA_100REL_OPTIONAL  # PRACK for peers that support it, required of none
    _set_session_timer(config.callConfig, settings.session_timer_s)
    _set_srtp(config.mediaConfig, settings.srtp)
    transport = config.mediaConfig.transportConfig
    transport.port = settings.rtp_first_port
    transport.portRange = (settings.rtp_last_port - settings.rtp_first_port - 1) // 2 * 2  # of RTP: RTCP has the next
    transport.boundAddress = bound_address(settings.host)
    transport.publicAddress = default_local_address(settings.host, version)
    if version == 6:
        config.mediaConfig.ipv6Use = pj.PJSUA_IPV6_ENABLED_USE_IPV6_ONLY
        transport.sockOptParams.sockOpts.append(IPV6_ONLY)
    else:
        config.mediaConfig.ipv6Use = pj.PJSUA_IPV6_DISABLED
    return config


def trunk_config(settings: EndpointSettings, version: int, trunk: Trunk) -> pj.AccountConfig:
    """The configuration of a trunk's own account. PJSUA does not register it by itself."""
    config = account_config(settings, version)
    config.idUri = identity_uri(trunk)
    if trunk.credentials:
        credentials = pj.AuthCredInfo("digest", "*", trunk.credentials.user, 0, trunk.credentials.password)
        config.sipConfig.authCreds.append(credentials)
    return config


_SRTP_USE = {
    "off": pj.PJMEDIA_SRTP_DISABLED,
    "optional": pj.PJMEDIA_SRTP_OPTIONAL,
    "required": pj.PJMEDIA_SRTP_MANDATORY,
}
_SUITES = ("AES_CM_128_HMAC_SHA1_80", "AES_256_CM_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32", "AES_256_CM_HMAC_SHA1_32")
"""RFC 4568 6.2 and RFC 6188: the suites that we offer, the most common one first. An answer takes the offer's first."""


def _set_srtp(config: pj.AccountMediaConfig, use: SrtpUse) -> None:
    """Offers have SDES keys (RFC 4568), because an offer can have one keying only; answers accept DTLS too."""
    config.srtpUse = _SRTP_USE[use]
    config.srtpSecureSignaling = 0  # keys in unencrypted SIP are warned of, not refused
    config.srtpOpt.keyings.append(pj.PJMEDIA_SRTP_KEYING_SDES)
    if use != "off":
        config.srtpOpt.keyings.append(pj.PJMEDIA_SRTP_KEYING_DTLS_SRTP)
    for name in _SUITES:
        suite = pj.SrtpCrypto()
        suite.name = name
        config.srtpOpt.cryptos.append(suite)


def _set_session_timer(config: pj.AccountCallConfig, seconds: int) -> None:
    """RFC 4028. In an inbound call the caller decides whether there is a session timer."""
    config.timerUse = pj.PJSUA_SIP_TIMER_OPTIONAL if seconds else pj.PJSUA_SIP_TIMER_INACTIVE
    config.timerMinSESec = MIN_SE_S
    config.timerSessExpiresSec = seconds or MIN_SE_S
