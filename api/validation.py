"""Checks requests against the models of a route, and says what is wrong field by field."""

from __future__ import annotations

from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from api.fields import UUID_PATTERN, BodyContext, Query
from config.errors import FieldProblem, Invalid, NotFound, TooLarge

M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=Query)


def item_id(request: web.Request, noun: str | None) -> str:
    """The id in the path in its normal form; `NotFound` when it is no UUID, "" when the route has none."""
    if noun is None:
        return ""
    text = request.match_info["id"]
    if UUID_PATTERN.fullmatch(text) is None:
        raise NotFound(f"{noun} not found")
    return text.lower()


async def read_body(request: web.Request, max_bytes: int) -> bytes:
    """The whole body; `TooLarge` as soon as it is over the limit, `Invalid` when it breaks off."""
    if request.content_length is not None and request.content_length > max_bytes:
        raise TooLarge("Request body is too large")
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.content.iter_any():
            size += len(part)
            if size > max_bytes:
                raise TooLarge("Request body is too large")
            parts.append(part)
    except web.RequestPayloadError as error:
        raise Invalid([FieldProblem("body", "The body cannot be read")]) from error
    return b"".join(parts)


def check_body(model: type[M], body: bytes, context: BodyContext) -> M:
    """The body as its model, strictly; `Invalid` names every field that is wrong."""
    try:
        return model.model_validate_json(body, context=context)
    except ValidationError as error:
        raise Invalid(problems_of(error)) from error


def check_query(model: type[P], request: web.Request) -> P:
    """The query parameters that the model has; `Invalid` names those that are malformed, out of range or repeated."""
    names = [field.alias or name for name, field in model.model_fields.items()]
    repeated = [name for name in names if len(request.query.getall(name, [])) > 1]
    if repeated:
        raise Invalid([FieldProblem(name, "Must be given once") for name in repeated])
    try:
        return model.model_validate({name: request.query[name] for name in names if name in request.query})
    except ValidationError as error:
        raise Invalid(problems_of(error)) from error


def problems_of(error: ValidationError) -> list[FieldProblem]:
    """One entry for each problem: the JSON path of the field, `body` for the body as a whole, and a message that
    does not repeat the value."""
    found = error.errors(include_url=False, include_input=False)
    return [FieldProblem(".".join(map(str, each["loc"])) or "body", _message(each)) for each in found]


def _message(problem: ErrorDetails) -> str:
    match problem["type"]:
        case "missing":
            return "Is required"
        case "extra_forbidden":
            return "Unknown field"
        case "json_invalid":
            return "Must be valid JSON"
        case "uuid_parsing" | "uuid_type":
            return "Must be a UUID"
        case _:
            return problem["msg"].replace("Input should", "Must").replace("String should", "Must", 1)
