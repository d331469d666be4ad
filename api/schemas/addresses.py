"""URLs, SIP addresses and SIP sources in bodies. Each kind has one pattern, which is both enforced and published. The
patterns of short texts use lookahead, which pydantic's regex engine does not support; for the others that engine takes
linear time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import collapse_addresses, ip_network
from typing import Annotated, Final

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from api.schemas.base import BodyContext
from api.schemas.bounds import MAX_SOURCES, MAX_URL
from config.special_addresses import non_unicast_kind
from storage.phone_numbers.sip_sources import normal_host, normal_source

_OCTET: Final = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4: Final = rf"{_OCTET}(\.{_OCTET}){{3}}"
_GROUP: Final = r"[0-9A-Fa-f]{1,4}"
_COMPRESSED: Final = (rf"({_GROUP}:){{1,{7 - after}}}(:{_GROUP}){{1,{after}}}" for after in range(1, 7))
IPV6: Final = "|".join(
    (rf"({_GROUP}:){{7}}{_GROUP}", rf"({_GROUP}:){{1,7}}:", *_COMPRESSED, rf":(:{_GROUP}){{1,7}}", "::")
)
"""RFC 4291, 2.2, without the third form, which ends with an IPv4 address."""
HOST_NAME: Final = r"([A-Za-z0-9_-]+\.)*(?![0-9]+([^A-Za-z0-9_-]|$))[A-Za-z0-9_-]+\.?"
"""Underscores are allowed, as resolvers do; a name whose last label is a number would be a mistyped address. A name
with labels that are too long is accepted, but cannot be resolved."""
PORT: Final = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_SIP: Final = "[Ss][Ii][Pp][Ss]?"
_UNICAST_IPV4: Final = rf"([1-9][0-9]?|1[0-9]{{2}}|2[01][0-9]|22[0-3])(\.{_OCTET}){{3}}"
_REJECT_NON_UNICAST: Final = r"(?!\[?([0:]+|[Ff]{2}[0-9A-Fa-f]{2}:.*)(/|\]|$))"
_REJECT_NON_UNICAST_IPV6: Final = r"(?!([0:]+|[Ff]{2}[0-9A-Fa-f]{2}:[0-9A-Fa-f:]*)\])"
SIP_ADDRESS: Final = (
    rf"^(?!{_SIP}:[0-9]+(;|$))({_SIP}:([A-Za-z0-9._!~*'()&=+$,?/%:-]+@)?)?"
    rf"({HOST_NAME}|{_UNICAST_IPV4}|\[{_REJECT_NON_UNICAST_IPV6}({IPV6})\])(:{PORT})?(;[A-Za-z0-9=;._-]*)?$"
)
"""`host`, `host:port` or a `sip:` URI. The first group rejects `sip:5060`, which is not a host `sip` with a port."""
SIP_HOST: Final = rf"^{_REJECT_NON_UNICAST}({HOST_NAME}|{_UNICAST_IPV4}|{IPV6}|\[({IPV6})\])$"
"""No multicast, broadcast, unspecified or reserved address (RFC 6890), because no peer has one."""
SIP_SOURCE: Final = (
    rf"^{_REJECT_NON_UNICAST}({HOST_NAME}|{_UNICAST_IPV4}(/(8|9|[12][0-9]|3[0-2]))?|"
    rf"({IPV6})(/(1[6-9]|[2-9][0-9]|1[01][0-9]|12[0-8]))?|\[({IPV6})\])$"
)
"""A host, or a network with a prefix of at least 8 bits (IPv4) or 16 bits (IPv6), because shorter ones cover large
parts of the internet. No unspecified, multicast or reserved address (RFC 6890), because no call can come from one."""

_ESCAPED: Final = "%[0-9A-Fa-f]{2}"
_VARIABLE: Final = r"\{\{ *[A-Za-z0-9_]+ *\}\}"
_USERINFO: Final = r"[A-Za-z0-9._~!$&'()*+,;=:-]"
_HOST: Final = r"[A-Za-z0-9._-]"
_PATH_OR_QUERY: Final = r"[A-Za-z0-9._~!$&'()*+,;=:@/?-]"
_TEMPLATE_PATH_OR_QUERY: Final = r"[^\x00-\x20\x7f-\xa0\\{]"


def _mixed(character: str, other: str) -> str:
    """A pattern for any number of characters of a class, with `other` anywhere between them."""
    return f"{character}*(({other}){character}*)*"


def _http(scheme: str) -> str:
    """A pattern by RFC 3986, appendix A, with fewer forms of hosts."""
    rest = _mixed(_PATH_OR_QUERY, _ESCAPED)
    host = rf"({_HOST}+|\[({IPV6})\])(:{PORT})?"
    return rf"^{scheme}://({_mixed(_USERINFO, _ESCAPED)}@)?{host}([/?]{rest})?(#{rest})?$"


HTTP: Final = _http("[Hh][Tt][Tt][Pp][Ss]?")
HTTPS: Final = _http("[Hh][Tt][Tt][Pp][Ss]")
_SINGLE_BRACE: Final = rf"\{{{_TEMPLATE_PATH_OR_QUERY}"
HTTP_TEMPLATE: Final = (
    rf"^[Hh][Tt][Tt][Pp][Ss]?://({_mixed(_USERINFO, f'{_ESCAPED}|{_VARIABLE}')}@)?"
    rf"(({_HOST}|{_VARIABLE}){_mixed(_HOST, _VARIABLE)}|\[({IPV6})\])(:({PORT}|{_VARIABLE}))?"
    rf"([/?#]{_mixed(_TEMPLATE_PATH_OR_QUERY, f'{_SINGLE_BRACE}|{_VARIABLE}')}\{{?)?$"
)
"""A URL with variables anywhere but in the scheme; path and query are hardly checked."""
HOST_OF_URL: Final = re.compile(r"[A-Za-z]+://(?:[^/?#]*@)?(\[[^\]]*\]|[^/?#:]*)")
"""The group is the host of a URL that matches a pattern above."""
PATTERN_MESSAGES: Final = dict.fromkeys((HTTP, HTTP_TEMPLATE), "Must be an absolute http or https URL")
"""The error message for a text that does not match, by pattern."""


def _require_https(text: str, info: ValidationInfo) -> str:
    context = info.context
    allow_http = isinstance(context, BodyContext) and context.allow_http_webhooks
    if text[:5].lower() != "https" and not allow_http:
        raise PydanticCustomError(
            "https",
            "Must be an https URL, unless the setting [webhooks] allow_http (TRUNKLINE_WEBHOOKS__ALLOW_HTTP) is true",
        )
    return text


def _require_allowed_host(text: str, info: ValidationInfo) -> str:
    """Rejects a URL to which no request would be sent, because its host is known to be an address that the settings
    forbid. No name is looked up, and variables in the host stay as they are."""
    rules = info.context.egress if isinstance(info.context, BodyContext) else None
    host = HOST_OF_URL.match(text)
    if rules is not None and host is not None and (address := rules.refused_host(host[1])) is not None:
        raise PydanticCustomError(
            "egress",
            "Requests to {address} are refused by the settings [egress] allow and deny (TRUNKLINE_EGRESS__ALLOW, "
            "TRUNKLINE_EGRESS__DENY)",
            {"address": address},
        )
    return text


def _require_unicast(source: str) -> None:
    """Raises unless the address, in normal form, is unicast and not that of a cloud's metadata service."""
    if (what := non_unicast_kind(source)) is not None:
        raise PydanticCustomError("unicast", "Must be the unicast address of a trunk: this is {what}", {"what": what})


def _check_sip_address(text: str) -> str:
    _require_unicast(normal_host(text))
    if re.fullmatch(SIP_ADDRESS, text) is None:
        raise PydanticCustomError("host", "Must be host, host:port or a sip: URI, with an IP address or a host name")
    return text


def _check_sip_host(text: str) -> str:
    _require_unicast(normal_host(text))
    if re.fullmatch(SIP_HOST, text) is None:
        raise PydanticCustomError("host", "Must be an IP address or a host name")
    return text


def _check_sip_source(text: str) -> str:
    try:
        source = normal_source(text)
    except ValueError:  # not a network; the pattern rejects it
        source = text
    _require_unicast(source)
    if re.fullmatch(SIP_SOURCE, text) is None:
        raise PydanticCustomError(
            "source",
            "Must be a unicast IP address, a network (IPv4 of /8 to /32, IPv6 of /16 to /128) or a host name",
        )
    return text


MAX_SOURCE_ADDRESSES: Final = {4: 1 << 24, 6: 1 << 112}
"""Addresses in a list of sources, by IP version."""


def are_narrow(sources: Sequence[str]) -> bool:
    """True if the networks of a list together have no more addresses than the widest allowed network."""
    networks = [ip_network(each, strict=False) for each in sources if "/" in each]
    for version, limit in MAX_SOURCE_ADDRESSES.items():
        collapsed = collapse_addresses([each for each in networks if each.version == version])  # type: ignore[type-var]
        if sum(each.num_addresses for each in collapsed) > limit:
            return False
    return True


def _check_narrow(sources: list[str]) -> list[str]:
    if not are_narrow(sources):
        raise PydanticCustomError("sources", "Must have no more addresses in all than a /8 of IPv4 and a /16 of IPv6")
    return sources


HttpAddress = Annotated[str, Field(pattern=HTTP, max_length=MAX_URL, json_schema_extra={"format": "uri"})]
WebhookAddress = Annotated[
    str,
    Field(pattern=HTTP, max_length=MAX_URL, json_schema_extra={"format": "uri", "pattern": HTTPS}),
    AfterValidator(_require_https),
    AfterValidator(_require_allowed_host),
]
HttpTemplate = Annotated[str, Field(pattern=HTTP_TEMPLATE, max_length=MAX_URL), AfterValidator(_require_allowed_host)]
SipAddress = Annotated[
    str,
    Field(min_length=1, max_length=100, json_schema_extra={"pattern": SIP_ADDRESS}),
    AfterValidator(_check_sip_address),
]
SipHost = Annotated[
    str,
    Field(min_length=1, max_length=255, json_schema_extra={"pattern": SIP_HOST}),
    AfterValidator(_check_sip_host),
]
SipSource = Annotated[
    str,
    Field(min_length=1, max_length=255, json_schema_extra={"pattern": SIP_SOURCE}),
    AfterValidator(_check_sip_source),
]
SipSources = Annotated[list[SipSource], Field(max_length=MAX_SOURCES), AfterValidator(_check_narrow)]
