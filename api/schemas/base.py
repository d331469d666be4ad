"""Base classes and common types of bodies, query parameters and responses. Bodies are strict: no type is converted."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError, to_json

from api.schemas.bounds import MAX_DESCRIPTION, MAX_JSON, MAX_NAME, MAX_VALUES, bounds_whole_value
from api.schemas.patterns import ONE_LINE, reject_tag_characters
from calls.call_record.context_variables import PLACEHOLDER
from calls.http_egress.address_rules import HttpEgressRules
from config.clock import iso, whole_ms
from config.settings import Settings


@dataclass(frozen=True)
class BodyContext:
    """Settings that the validation of a body depends on."""

    allow_http_webhooks: bool
    egress: HttpEgressRules | None = None
    """None: the hosts of URLs are not checked."""
    file: bytes | None = field(default=None, repr=False)
    """The file of a form; it takes the place of the base64."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The context of requests to a server with these settings."""
        return cls(settings.webhooks.allow_http, HttpEgressRules.of(settings.egress))


class Body(BaseModel):
    """A request body: camelCase names, unknown fields rejected, no conversion between types."""

    model_config = ConfigDict(
        strict=True, extra="forbid", alias_generator=to_camel, allow_inf_nan=False, hide_input_in_errors=True
    )

    @model_validator(mode="after")
    def _replace_nul(self) -> Self:
        """U+FFFD in the place of U+0000 in texts, which not every database stores. Objects with keys of the client's
        choice are stored as JSON, which has it."""
        for name, value in self.__dict__.items():
            if isinstance(value, str) and "\0" in value:
                self.__dict__[name] = value.replace("\0", "\N{REPLACEMENT CHARACTER}")
        return self


class NoBody(Body):
    """An empty body: `{}`, or no body at all."""


class Query(BaseModel):
    """Query parameters, converted from text; unknown ones are rejected before."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, frozen=True)


class View(BaseModel):
    """A response or a part of one, made from stored dataclasses."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True, frozen=True)


def without_default(schema: dict[str, Any]) -> None:
    """Removes the default from the JSON schema of a field whose description says what an absent value means."""
    schema.pop("default", None)


def without_defaults(schema: dict[str, Any]) -> None:
    """Removes the defaults from the JSON schema of a PATCH body, because an absent field stays as it is."""
    for each in schema.get("properties", {}).values():
        each.pop("default", None)


def _check_placeholders(text: str, closed_by: str) -> str:
    """Rejects a `{{` that does not begin a placeholder and has `closed_by` after it. Takes linear time."""
    rest = PLACEHOLDER.sub("1", text)
    opened = rest.find("{{")
    if opened >= 0 and rest.find(closed_by, opened + 2) >= 0:
        raise PydanticCustomError(
            "placeholder", "A placeholder takes letters, digits and underscores, as in {{first_name}}"
        )
    return text


def _check_finite(value: dict[str, Any]) -> dict[str, Any]:
    """Rejects NaN and infinity, which JSON does not have."""
    pending: list[Any] = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            pending.extend(each.values())
        elif isinstance(each, list):
            pending.extend(each)
        elif isinstance(each, float) and not math.isfinite(each):
            raise PydanticCustomError("finite", "Numbers must be finite")
    return value


@bounds_whole_value
def check_bounds(value: dict[str, Any]) -> dict[str, Any]:
    """Rejects an object with too many values or too much JSON, so that a page of a hundred of them stays fast."""
    pending: list[Any] = [value]
    values = -1
    while pending:
        values += 1
        if values > MAX_VALUES:
            raise PydanticCustomError("values", f"Must have at most {MAX_VALUES} values, nested ones included")
        each = pending.pop()
        if isinstance(each, dict):
            pending.extend(each.values())
        elif isinstance(each, list):
            pending.extend(each)
    if len(to_json(value)) > MAX_JSON:
        raise PydanticCustomError("size", f"Must be at most {MAX_JSON // 1024} KiB of JSON")
    return value


def _parse_whole_number(value: object) -> object:
    """A query parameter as a whole number, digits only."""
    if isinstance(value, str):
        if re.fullmatch(r"-?[0-9]{1,40}", value) is None:
            raise PydanticCustomError("int", "Must be a whole number")
        return int(value)
    return value


def _parse_flag(value: object) -> object:
    """A query parameter as a boolean."""
    if isinstance(value, str):
        if value not in ("true", "false"):
            raise PydanticCustomError("flag", "Must be true or false")
        return value == "true"
    return value


_NO_TIME: Final = "Must be an ISO 8601 time, as 2026-11-21T05:00:00Z; in a URL + is %2B"


def _parse_instant(value: object) -> object:
    """A query parameter as a time; without an offset it is UTC."""
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
            return whole_ms(at if at.tzinfo is not None else at.replace(tzinfo=UTC))
        except (ValueError, OverflowError) as error:
            raise PydanticCustomError("time", _NO_TIME) from error
    return value


def _check_uuid_form(value: object) -> object:
    """Accepts UUIDs only in the form of RFC 9562, 4: no braces, no URNs, no digits without hyphens."""
    if isinstance(value, str) and UUID_PATTERN.fullmatch(value) is None:
        raise PydanticCustomError("uuid", "Must be a UUID")
    return value


UUID_PATTERN = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=ONE_LINE), AfterValidator(reject_tag_characters)]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION)]
ValidPlaceholders: Final = AfterValidator(partial(_check_placeholders, closed_by="}}"))
"""For spoken texts: `{{` without `}}` is text."""
StrictPlaceholders: Final = AfterValidator(partial(_check_placeholders, closed_by=""))
"""For texts that a program parses: every `{{` must begin a placeholder."""
Id = Annotated[UUID, BeforeValidator(_check_uuid_form), PlainSerializer(str)]
JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_check_finite)]
BoundedJsonObject = Annotated[
    JsonObject, AfterValidator(check_bounds), Field(json_schema_extra={"maxProperties": MAX_VALUES})
]
IdView = Annotated[str, WithJsonSchema({"type": "string", "format": "uuid"})]
Instant = Annotated[
    datetime,
    PlainSerializer(iso, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "example": "2026-11-21T05:00:00.123Z"}),
]
QueryFlag = Annotated[bool, BeforeValidator(_parse_flag), WithJsonSchema({"type": "boolean"})]
QueryMs = Annotated[int, Field(ge=0, le=86_400_000), BeforeValidator(_parse_whole_number)]
QueryInstant = Annotated[datetime, BeforeValidator(_parse_instant)]
QueryId = Annotated[UUID, BeforeValidator(_check_uuid_form)]


class Paging(Query):
    """The page of a list."""

    limit: Annotated[int, Field(ge=1, le=100), BeforeValidator(_parse_whole_number)] = Field(
        50, description="Maximum number of items to return"
    )
    offset: Annotated[int, Field(ge=0, le=2**63 - 1), BeforeValidator(_parse_whole_number)] = Field(
        0, description="Number of items to skip"
    )
