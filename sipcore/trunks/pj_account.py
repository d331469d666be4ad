"""pjsua2's accounts: who we are for a peer, and where the legs of its calls are taken."""

from __future__ import annotations

from collections.abc import Callable

import pjsua2 as pj

from sipcore.messages.headers import bracketed
from sipcore.settings import EndpointSettings, SrtpUse
from sipcore.transport.listeners import IPV6_ONLY, bound_address, default_local_address
from sipcore.trunks.trunk import Trunk
from sipcore.trunks.trunk_uris import identity_uri

SHORTEST_SESSION_TIMER_S = 90
"""RFC 4028 5: who asks for a shorter one gets 422."""


class TrunkAccount(pj.Account):  # type: ignore[misc]
    """The account that trunks share, which takes every INVITE that the guard lets through; or one that a trunk makes
    its calls with."""

    def __init__(self, on_incoming: Callable[[pj.Account, pj.OnIncomingCallParam], None]) -> None:
        super().__init__()
        self._on_incoming = on_incoming

    def onIncomingCall(self, prm: pj.OnIncomingCallParam) -> None:
        """PJSIP's worker: a new INVITE."""
        self._on_incoming(self, prm)


def account_config(settings: EndpointSettings, version: int = 4) -> pj.AccountConfig:
    """Of an account that takes every call that comes, with the audio ports of the settings. Its sound goes over that IP
    version, whatever the SIP of a call goes over."""
    config = pj.AccountConfig()
    config.idUri = f"sip:trunkline@{bracketed(settings.public_address or settings.host)}"
    config.natConfig.contactRewriteUse = 0
    config.natConfig.viaRewriteUse = False
    config.natConfig.sdpNatRewriteUse = False
    config.natConfig.sipOutboundUse = 0  # RFC 5626 is not spoken; its `ob` in Contact would say so
    config.natConfig.contactUseSrcPort = 0  # peers can reach the port that we listen on, however a connection ends
    config.callConfig.prackUse = pj.PJSUA_100REL_OPTIONAL  # whoever supports it gets it, nobody is asked for it
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
    """Of an account that one trunk makes its calls with. PJSUA registers nothing by itself."""
    config = account_config(settings, version)
    config.idUri = identity_uri(trunk)
    if trunk.credentials:
        who = pj.AuthCredInfo("digest", "*", trunk.credentials.user, 0, trunk.credentials.password)
        config.sipConfig.authCreds.append(who)
    return config


_SRTP_USE = {
    "off": pj.PJMEDIA_SRTP_DISABLED,
    "optional": pj.PJMEDIA_SRTP_OPTIONAL,
    "required": pj.PJMEDIA_SRTP_MANDATORY,
}
_SUITES = ("AES_CM_128_HMAC_SHA1_80", "AES_256_CM_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32", "AES_256_CM_HMAC_SHA1_32")
"""RFC 4568 6.2 and RFC 6188: what we offer, the one that everybody has first. An answer takes the offerer's first."""


def _set_srtp(config: pj.AccountMediaConfig, wanted: SrtpUse) -> None:
    """Offers have keys in the SDP (RFC 4568), for an offer can have one way of keying only; answers take DTLS too."""
    config.srtpUse = _SRTP_USE[wanted]
    config.srtpSecureSignaling = 0  # keys in unencrypted SIP are warned of, not refused
    config.srtpOpt.keyings.append(pj.PJMEDIA_SRTP_KEYING_SDES)
    if wanted != "off":
        config.srtpOpt.keyings.append(pj.PJMEDIA_SRTP_KEYING_DTLS_SRTP)
    for name in _SUITES:
        suite = pj.SrtpCrypto()
        suite.name = name
        config.srtpOpt.cryptos.append(suite)


def _set_session_timer(config: pj.AccountCallConfig, seconds: int) -> None:
    """RFC 4028. In a call that comes in, the caller says whether there is one."""
    config.timerUse = pj.PJSUA_SIP_TIMER_OPTIONAL if seconds else pj.PJSUA_SIP_TIMER_INACTIVE
    config.timerMinSESec = SHORTEST_SESSION_TIMER_S
    config.timerSessExpiresSec = seconds or SHORTEST_SESSION_TIMER_S
