"""The texts of the OpenAPI document, and its examples of errors."""

from __future__ import annotations

from typing import Any, Final

INTRODUCTION: Final = """Voice AI agents on the telephone: they answer the numbers that they are assigned to, and call
out.

Bodies and responses are JSON with camelCase names. Ids are UUIDs, times are ISO 8601 in UTC, telephone numbers
E.164. One thing comes as `{data: {...}}`, a list as `{data: [...], pagination: {total, limit, offset}}`, newest
first. A page holds at most `limit` items and 4 MiB of JSON, but always one item: it may hold fewer than `limit` though
there are more. Go on at `offset` plus as many as it held, until that is `total`. A client that takes nothing of an
answer for seconds is disconnected.

Bodies are checked strictly: an unknown field, or a value of another type, is refused. Every text, list and object has
a bound. A PATCH changes what it names: an absent field stays as it is, `null` clears a field that can be null.

## Authentication

Every request carries `Authorization: Bearer <API_KEY>`; `trunkline key create --org NAME` makes a key and shows it
once. A key belongs to an organization and sees nothing of any other: somebody else's id is answered like an
unknown one. `recordingUrl` and `transcriptUrl` also open without a key: they carry a signature that runs out.

## Errors

An error is `{error: "..."}`. A 403 says in `details` which field the operator does not allow.
When fields are wrong it is a 400 with `error: "Validation failed"` and `details`,
one entry for each problem: `field` is the path of the field, as in `config.headers.0.key`, or the name of a
parameter or header. A 401 has one entry, which says whether the key is missing or not valid, or what is wrong with
a signed link.

## Headers and rate limits

A key may send 100 requests in a window of 60 seconds unless it has a rate of its own; without a valid key the
client's address is counted. `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` are on every
response. What is over the limit is answered with 429, `Retry-After` and `retryAfter`. `X-Request-Id` names the
request in the server's log; a client may choose it.

## Sending again

A POST may carry an `Idempotency-Key`. The same key on the same path within 24 hours gets the first answer again,
byte for byte, with `Idempotent-Replay: true`, whatever the body says, and makes nothing new. 401, 429 and 5xx are
not kept.

## Quotas

An organization stores at most so many agents, tools, documents, sounds and numbers, else 403, and so many bytes of
documents, sounds and answers that are kept to be sent again, else 413: `quota` tells which one, and what is used.
While the server's disk is almost full, what would store more gets 507; calls and DELETE go on.
"""
TAGS: Final = {
    "Agents": "Assistants with a prompt, a voice and settings for turn taking.",
    "Phone numbers": "Numbers and extensions, the trunk that each hangs on, and the agent that answers it.",
    "Calls": "Calls in and out: their state, talk, recording, timings and webhooks.",
    "Tools": "HTTP requests that agents may make.",
    "Knowledge": "Documents that agents can search.",
    "Background sounds": "What callers hear softly behind the agent.",
    "Models": "Voices and language models that are installed.",
    "Description": "This document.",
}
REASONS: Final = {
    400: "A field or parameter breaks a constraint, or the request is malformed",
    401: "There is no API key, or it is not valid, or the signed link is not; the details say which",
    402: "Insufficient balance",
    403: "The operator does not let this organization do it, or a quota of the organization is used up",
    404: "No such resource in this organization",
    408: "The body came too slowly",
    409: "Not possible in the resource's state",
    413: "The body is over the limit, or a quota of bytes is used up",
    416: "The range lies outside of the file",
    429: "Rate limit exceeded",
    500: "Server error",
    503: "Service temporarily unavailable",
    507: "The server's disk is almost full",
}
_WRONG_FIELD: Final = {"field": "config.url", "message": "Is required"}
ERROR_EXAMPLES: Final[dict[int, dict[str, Any]]] = {
    400: {"error": "Validation failed", "details": [_WRONG_FIELD]},
    401: {
        "error": "Invalid API key",
        "details": [{"field": "Authorization", "message": "This key is unknown or has been revoked"}],
    },
    402: {"error": "Insufficient funds. Please top up your balance."},
    403: {
        "error": "Quota exceeded: phone_numbers, 20000 of 20000 used",
        "quota": {"name": "phone_numbers", "used": 20000, "allowed": 20000},
    },
    404: {"error": "Agent not found"},
    408: {"error": "The request body came too slowly"},
    409: {"error": "Call has already ended"},
    413: {"error": "Request body is too large"},
    416: {"error": "Range Not Satisfiable"},
    429: {"error": "Rate limit exceeded", "retryAfter": 60},
    500: {"error": "Internal server error"},
    503: {"error": "Service temporarily unavailable"},
    507: {"error": "The server's disk is almost full: nothing more can be stored"},
}
RATE_HEADERS: Final = {
    "X-RateLimit-Limit": "Requests in a window of 60 seconds",
    "X-RateLimit-Remaining": "Requests left in this window",
    "X-RateLimit-Reset": "Unix time in seconds at which the window ends",
}
IDEMPOTENCY_KEY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Of the client's choice: the same key gets the same answer for 24 hours, and nothing is done twice",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"},
    "example": "order-4711",
}
