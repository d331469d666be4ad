"""Patterns of phone numbers, names, header fields and other texts, both enforced and published, with error messages."""

from __future__ import annotations

import re
from typing import Annotated, Final

import langcodes
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from api.schemas.bounds import MAX_HEADER_NAME, MAX_HEADER_VALUE, MAX_NAME
from storage.users.users import MAX_NAME as MAX_USER_NAME
from storage.users.users import NAME_PATTERN, NAME_RULE

DESTINATION: Final = r"^(\+[1-9][0-9]{1,14}|[0-9]{2,7})$"
E164_OR_EXTENSION: Final = r"^(\+[1-9][0-9]{1,14}|[0-9]{2,15})$"
PREFIX: Final = r"^(\+([1-9][0-9]{0,14})?|[0-9]{1,15})$"
LANGUAGE_TAG: Final = r"^([A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*|[XxIi](-[A-Za-z0-9]{1,8})+)$"
"""Similar to RFC 5646, 2.1: a language (or the prefix of a private or grandfathered tag), then subtags."""
TOKEN: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
"""RFC 9110, 5.6.2."""
NO_CONTROLS: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"
ONE_LINE: Final = (
    r"^[^\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]*$"
)
"""Text that looks the same in lists, logs and terminals: no control characters, no line ends, no invisible characters
that reorder text (Unicode's UAX #9, 2) or have no meaning. The joiners U+200C and U+200D, which Persian and emoji need,
and variation selectors are allowed. Tag characters are rejected separately (`TAGS`)."""
TAGS: Final = re.compile("[\U000e0000-\U000e007f]")
"""Tag characters, an invisible copy of ASCII (Unicode, 23.9). The pattern is not published, because no notation of
these characters is the same in ECMA 262 and in Python."""
MODEL_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}$"
VOICE_NAME: Final = ONE_LINE.replace("[^", r"[^\s/=", 1).replace("]*$", "]+$")
BEARER_KEY: Final = r"^[!-~]+$"
SIP_USER: Final = r"^[^\x00-\x20\x7f-\xa0<>\x22]+$"

PATTERN_MESSAGES: Final = {
    DESTINATION: "Must be an E.164 number, as +41441234567, or an extension of 2 to 7 digits, as 100",
    E164_OR_EXTENSION: "Must be an E.164 number, as +41441234567, or an extension of 2 to 15 digits",
    PREFIX: "Must be the beginning of an E.164 number, as +49, or of an extension",
    LANGUAGE_TAG: "Must be a language tag (BCP 47), as en or pt-BR",
    TOKEN: "Must be the name of a header: letters, digits and !#$%&'*+-.^_`|~",
    NO_CONTROLS: "Must have no control characters",
    ONE_LINE: "Must have no line breaks, no control characters and no invisible or bidirectional formatting characters",
    MODEL_NAME: "Must be letters, digits and _.+-, with a letter or a digit at the beginning",
    VOICE_NAME: "Must have no spaces, no / or =, no control characters and no invisible formatting characters",
    BEARER_KEY: "Must be one line of printable ASCII without spaces",
    SIP_USER: "Must have no spaces, control characters, quotation marks or angle brackets",
    NAME_PATTERN: f"Must be {NAME_RULE}",
}
"""Error messages by pattern."""


def reject_tag_characters(text: str) -> str:
    """Returns the text. Raises `PydanticCustomError`, a `ValueError`, if it has tag characters."""
    if TAGS.search(text) is not None:
        raise PydanticCustomError("tags", PATTERN_MESSAGES[ONE_LINE])
    return text


def _require_known_language(tag: str) -> str:
    """Returns the tag. Raises `PydanticCustomError`, a `ValueError`, if one of its parts is not in IANA's registry of
    language subtags (RFC 5646, 2.2.9: a valid tag)."""
    if not langcodes.tag_is_valid(tag):
        raise PydanticCustomError("language", "Must be a known language, as en or pt-BR")
    return tag


# The patterns of numbers limit their length; a separate limit would only change the error message for a long one.
Destination = Annotated[str, Field(pattern=DESTINATION, json_schema_extra={"example": "+41441234567", "maxLength": 16})]
DialNumber = Annotated[str, Field(pattern=E164_OR_EXTENSION, json_schema_extra={"maxLength": 16})]
DialPrefix = Annotated[str, Field(pattern=PREFIX, json_schema_extra={"example": "+49", "maxLength": 16})]
UserName = Annotated[str, Field(pattern=NAME_PATTERN, json_schema_extra={"maxLength": MAX_USER_NAME})]
LanguageTag = Annotated[str, Field(max_length=10, pattern=LANGUAGE_TAG), AfterValidator(_require_known_language)]
HeaderName = Annotated[str, Field(pattern=TOKEN, max_length=MAX_HEADER_NAME)]
HeaderValue = Annotated[str, Field(pattern=NO_CONTROLS, max_length=MAX_HEADER_VALUE)]
DisplayName = Annotated[str, Field(pattern=ONE_LINE, max_length=MAX_NAME), AfterValidator(reject_tag_characters)]
SipUser = Annotated[str, Field(min_length=1, max_length=60, pattern=SIP_USER)]
