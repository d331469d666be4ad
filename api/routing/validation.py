"""Validation of requests against the models of a route; problems are reported field by field."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from api.http.duplicate_json_keys import duplicate_key
from api.http.timeouts import DEADLINES
from api.schemas import addresses, patterns
from api.schemas.base import UUID_PATTERN, BodyContext, NoBody, Query
from api.schemas.bounds import MAX_DEPTH
from config.errors import BodyTimeout, BodyTooLarge, FieldProblem, Invalid, NotFound, TrunklineError

EXPECTS_CONTINUE: Final = web.RequestKey("expects_continue", bool)
"""True if the client waits for `100 Continue` before it sends the body."""
RECEIVED_BODY: Final = web.RequestKey("received_body", bytes)
"""The body, if it was read before the route is known to want it."""
UPLOAD_FORM: Final = "multipart/form-data"
"""The media type of forms with a file."""
FORM_MEDIA_TYPES: Final = ("multipart/", "application/x-www-form-urlencoded")
"""Media types that are rejected; with any other type, the body must be JSON."""
SMALL_BODY: Final = 1024 * 1024
"""Bytes; a larger body is an upload, with `UPLOAD_FACTOR` times the timeout."""
UPLOAD_FACTOR: Final = 4
MAX_PROBLEMS: Final = 100
MAX_FIELD_PATH: Final = 200
"""Characters of a field's path in an error."""
JSON_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
PATTERN_MESSAGES: Final = addresses.PATTERN_MESSAGES | patterns.PATTERN_MESSAGES
JSON_WHITESPACE: Final = b" \t\r\n"
NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))

M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=Query)


def item_id(request: web.Request, noun: str | None) -> str:
    """Returns the id in the path in normal form, "" if the route has none. Raises `NotFound` if it is not a UUID."""
    if noun is None:
        return ""
    text = request.match_info["id"]
    if UUID_PATTERN.fullmatch(text) is None:
        raise NotFound(f"{noun} not found")
    return text.lower()


MAX_NUMBER_DIGITS: Final = 9


def item_number(request: web.Request, noun: str | None) -> int:
    """Returns the number in the path, 0 if the route has none. Raises `NotFound` if it is not one from 1 on."""
    return 0 if noun is None else number_of(request.match_info["n"], noun)


def number_of(text: str, noun: str) -> int:
    """Returns the number of a numbered thing. Raises `NotFound` if the text is not a decimal one from 1 on."""
    if not (text.isascii() and text.isdigit()) or text.startswith("0") or len(text) > MAX_NUMBER_DIGITS:
        raise NotFound(f"{noun} not found")
    return int(text)


class BodyNotReceived(ConnectionError):
    """The body was not received completely; `cause` is the response to the client. It is a `ConnectionError`, which
    idempotency does not store: a repetition of the request may be received."""

    def __init__(self, cause: TrunklineError) -> None:
        super().__init__(cause.message)
        self.cause = cause


async def read_body(request: web.Request, max_bytes: int, *, form: bool = False) -> bytes:
    """Returns the complete body. Raises `BodyTooLarge` as soon as it is over the limit, `BodyNotReceived` if it is
    malformed or too slow, another `ConnectionError` if the client has disconnected, `Invalid` for a compressed body, or
    for a form unless `form`, the route takes `multipart/form-data`."""
    if RECEIVED_BODY in request:
        return request[RECEIVED_BODY]
    if (request.content_length or 0) > max_bytes:
        raise BodyTooLarge("Request body is too large")
    if request.can_read_body:
        _require_plain(request, form)
    try:
        if request.content.is_eof():
            body = request.content.read_nowait()
        else:
            async with request.app[DEADLINES].body_timeout(UPLOAD_FACTOR if max_bytes > SMALL_BODY else 1):
                body = await _receive(request, max_bytes)
    except web.RequestPayloadError as error:
        raise BodyNotReceived(Invalid([FieldProblem("body", "The body cannot be read")])) from error
    except BodyTimeout as error:
        raise BodyNotReceived(error) from error
    if len(body) > max_bytes:
        raise BodyTooLarge("Request body is too large")
    return body


def is_form(request: web.Request) -> bool:
    """True if the body is said to be `multipart/form-data`."""
    return request.content_type.lower() == UPLOAD_FORM


def _require_plain(request: web.Request, form: bool) -> None:
    if request.headers.get("Content-Type", "").lower().startswith(FORM_MEDIA_TYPES) and not (form and is_form(request)):
        also = ", or multipart/form-data" if form else ""
        raise Invalid([FieldProblem("body", f"Must be JSON, sent as application/json{also}")])
    codings = ",".join(request.headers.getall("Content-Encoding", [])).lower().split(",")
    if any(each.strip() not in ("", "identity") for each in codings):
        raise Invalid([FieldProblem("Content-Encoding", "Must be identity: bodies are not unpacked")])


async def send_continue(request: web.Request) -> None:
    """Sends `100 Continue` to a client that waits for it before the body."""
    if request.get(EXPECTS_CONTINUE, False):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


async def _receive(request: web.Request, max_bytes: int) -> bytes:
    """Receives the body up to its end, or until it is over the limit."""
    await send_continue(request)
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            break
    return b"".join(parts)


def check_body(model: type[M], body: bytes, context: BodyContext) -> M:
    """Validates the body strictly and returns it as the model. Raises `Invalid` with every wrong field. Duplicate keys
    are looked for last, because a body that the model accepts has few keys."""
    if issubclass(model, NoBody) and not body.strip(JSON_WHITESPACE):
        body = b"{}"
    try:
        checked = model.model_validate_json(body, context=context)
    except ValidationError as error:
        raise invalid(_problems_of(error)) from error
    if is_nested_deeper_than(MAX_DEPTH, body):
        raise Invalid([FieldProblem("body", f"Must not be nested deeper than {MAX_DEPTH} levels")])
    if (duplicate := duplicate_key(body)) is not None:
        raise invalid([FieldProblem(".".join(duplicate), "Is given twice")])
    return checked


def is_nested_deeper_than(levels: int, json: bytes) -> bool:
    """True if valid JSON nests objects and lists deeper than `levels`."""
    if json.count(b"[") + json.count(b"{") <= levels:
        return False
    brackets = JSON_STRING.sub(b"", json).translate(bytes.maketrans(b"{}", b"[]"), NO_BRACKETS)
    for _ in range(levels):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def check_query(model: type[P], request: web.Request, ignored: Collection[str] = ()) -> P:
    """Returns the query parameters as the model, but for those in `ignored`. Raises `Invalid` with those that are
    unknown, repeated, malformed or out of range."""
    names = {field.alias or name for name, field in model.model_fields.items()}
    given = [name for name in dict.fromkeys(request.query) if name not in ignored]
    problems = [FieldProblem(name, "Unknown parameter") for name in given if name not in names]
    repeated = [name for name in given if name in names and len(request.query.getall(name)) > 1]
    problems += [FieldProblem(name, "Must be given once") for name in repeated]
    if not problems:
        return check_parameters(model, {name: request.query[name] for name in given})
    try:
        check_parameters(model, {name: request.query[name] for name in given if name in names})
    except Invalid as error:
        problems += [each for each in error.problems if each.field not in repeated]
    raise invalid(problems)


def check_parameters(model: type[P], parameters: Mapping[str, str]) -> P:
    """Returns query parameters as the model. Raises `Invalid` with those that are unknown, malformed or out of
    range."""
    try:
        return model.model_validate(dict(parameters))
    except ValidationError as error:
        raise invalid(_problems_of(error)) from error


def invalid(problems: Sequence[FieldProblem]) -> Invalid:
    """Returns the error with the first problems and the number of the others, which limits the size of the
    response."""
    more = len(problems) - MAX_PROBLEMS
    reported = [FieldProblem(_shortened(each.field), each.message) for each in problems[:MAX_PROBLEMS]]
    if more > 0:
        reported.append(FieldProblem("body", f"Has {more} more {'problem' if more == 1 else 'problems'}"))
    return Invalid(reported)


def _shortened(path: str) -> str:
    return path if len(path) <= MAX_FIELD_PATH else f"{path[:MAX_FIELD_PATH]}…"


def _problems_of(error: ValidationError) -> list[FieldProblem]:
    """One entry for each problem: the JSON path of the field, `body` for the complete body, and a message that does not
    repeat the value."""
    errors = error.errors(include_url=False, include_input=False)
    return [FieldProblem(".".join(map(str, each["loc"])) or "body", _message(each)) for each in errors]


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
        case "string_pattern_mismatch" if problem["ctx"]["pattern"] in PATTERN_MESSAGES:
            return PATTERN_MESSAGES[problem["ctx"]["pattern"]]
        case _:
            return problem["msg"].replace("Input should", "Must").replace("String should", "Must", 1)
