"""The addresses that bodies take: each kind has one pattern, which is both checked and published. No repeated part can
end in more than one place, so that the time they take grows with the length of the text and no faster."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, LiteralString

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from api.fields import BodyContext
from calls.context import PLACEHOLDER

_BYTE: Final = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4: Final = rf"{_BYTE}(\.{_BYTE}){{3}}"
_GROUP: Final = r"[0-9A-Fa-f]{1,4}"
_SHORTENED: Final = (rf"({_GROUP}:){{1,{7 - behind}}}(:{_GROUP}){{1,{behind}}}" for behind in range(1, 7))
IPV6: Final = "|".join(
    (rf"({_GROUP}:){{7}}{_GROUP}", rf"({_GROUP}:){{1,7}}:", *_SHORTENED, rf":(:{_GROUP}){{1,7}}", "::")
)
"""RFC 4291, 2.2, without its third form, which writes the end as IPv4."""
HOST_NAME: Final = r"([A-Za-z0-9_-]{1,63}\.)*(?![0-9]+([^A-Za-z0-9_-]|$))[A-Za-z0-9_-]{1,63}\.?"
"""RFC 1035, 2.3.4: labels of 1 to 63 octets. Underscores are let through, as resolvers do; a name that ends with a
number would be a mistyped address."""
PORT: Final = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_SIP: Final = "[Ss][Ii][Pp][Ss]?"
SIP_PLACE: Final = (
    rf"^(?!{_SIP}:[0-9]+(;|$))({_SIP}:([^@\s;\[\]]+@)?)?({HOST_NAME}|{IPV4}|\[({IPV6})\])(:{PORT})?"
    r"(;[A-Za-z0-9=;._-]*)?$"
)
"""`host`, `host:port` or a `sip:` URI. The first group: `sip:5060` is no port of a host that is called sip."""
SIP_HOST: Final = rf"^(?=.{{1,253}}\.?$)({HOST_NAME}|{IPV4}|{IPV6}|\[({IPV6})\])$"
"""253 characters of a name in all, which are 255 octets in a message (RFC 1035, 2.3.4)."""

_USER: Final = r"[A-Za-z0-9._~!$&'()*+,;=:%-]"
_NAME: Final = r"[A-Za-z0-9._-]"
_REST: Final = r"[^\x00-\x20\x7f-\xa0\\]"
"""Of a path, query or fragment: more than RFC 3986 allows, as writers of addresses allow themselves more."""
_VARIABLE: Final = r"\{\{ *[A-Za-z0-9_]+ *\}\}"


def _http(scheme: str, user: str, name: str, port: str, rest: str) -> str:
    return rf"^{scheme}://({user}*@)?({name}+|\[({IPV6})\])(:{port})?([/?#]{rest}*)?$"


HTTP: Final = _http("[Hh][Tt][Tt][Pp][Ss]?", _USER, _NAME, PORT, _REST)
HTTPS: Final = _http("[Hh][Tt][Tt][Pp][Ss]", _USER, _NAME, PORT, _REST)
HTTP_TEMPLATE: Final = _http(
    "[Hh][Tt][Tt][Pp][Ss]?",
    f"({_USER}|{_VARIABLE})",
    f"({_NAME}|{_VARIABLE})",
    f"({PORT}|{_VARIABLE})",
    rf"([^\x00-\x20\x7f-\xa0\\{{]|\{{(?!\{{)|{_VARIABLE})",
)
"""With variables in any place but the scheme."""
NO_ADDRESS: Final = "Must be an absolute http or https URL"
NO_PLACE: Final = "Must be host, host:port or a sip: URI, with an IP address or a host name"
NO_HOST: Final = "Must be an IP address or a host name"


def _of_form(pattern: str, kind: LiteralString, message: LiteralString) -> AfterValidator:
    """Text that matches the pattern whole."""
    form = re.compile(pattern)

    def check(text: str) -> str:
        if form.fullmatch(text) is None:
            raise PydanticCustomError(kind, message)
        return text

    return AfterValidator(check)


def _webhook(text: str, info: ValidationInfo) -> str:
    context = info.context
    allow_http = isinstance(context, BodyContext) and context.allow_http_webhooks
    if text[:5].lower() != "https" and not allow_http:
        raise PydanticCustomError("https", "Must be an https URL")
    return text


def _published(pattern: str, **more: Any) -> Any:
    return Field(json_schema_extra={"pattern": pattern, **more})


def _template(text: str) -> str:
    """Text in which every `{{` begins a placeholder that can have a value."""
    if "{{" in PLACEHOLDER.sub("1", text):
        raise PydanticCustomError(
            "placeholder", "A placeholder takes letters, digits and underscores, as in {{first_name}}"
        )
    return text


Template: Final = AfterValidator(_template)
_AbsoluteHttp: Final = _of_form(HTTP, "uri", NO_ADDRESS)
HttpAddress = Annotated[str, _published(HTTP, format="uri"), _AbsoluteHttp]
WebhookAddress = Annotated[str, _published(HTTPS, format="uri"), _AbsoluteHttp, AfterValidator(_webhook)]
HttpTemplate = Annotated[str, _published(HTTP_TEMPLATE), Template, _of_form(HTTP_TEMPLATE, "uri", NO_ADDRESS)]
SipPlace = Annotated[
    str, Field(min_length=1, max_length=100), _published(SIP_PLACE), _of_form(SIP_PLACE, "host", NO_PLACE)
]
SipHost = Annotated[str, Field(min_length=1, max_length=255), _published(SIP_HOST), _of_form(SIP_HOST, "host", NO_HOST)]
