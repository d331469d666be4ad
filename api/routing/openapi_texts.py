"""Texts of the OpenAPI document: introduction, tags, descriptions and examples of errors."""

from __future__ import annotations

from typing import Any, Final

INTRODUCTION: Final = """Voice AI agents on the telephone: they answer inbound calls to phone numbers, and make outbound
calls.

Request bodies and responses are JSON with camelCase names; files may also be uploaded as `multipart/form-data`. Ids are
UUIDs, times are ISO 8601 in UTC, phone numbers are E.164, or extensions of a PBX. An object is returned as `{data:
{...}}`, a list as `{data: [...], pagination: {total, limit, offset}}`, newest first. A page has at most `limit` items
and 4 MiB of JSON, but at least one item, so it can have fewer than `limit` items even if more follow: add the number of
its items to `offset` for the next page, until `offset` is `total`.
A client that reads nothing of a response for some seconds is disconnected.

Bodies are validated strictly: an unknown field, or a value of another type, is rejected. Every text, list and object
has a maximum size. PATCH changes the fields in the body: an absent field stays as it is, `null` clears a nullable
field. An unknown or repeated query parameter is rejected, too.

## Authentication

Every request has the header `Authorization: Bearer <API_KEY>`; `trunkline key create --org NAME` creates a key and
shows it once. A key gives access to one organization: an id of another organization gets the response of an unknown
id. `recordingUrl` and `transcriptUrl` can also be opened without a key: they have a signature that expires. Users get
`recordingUrl` without one: it opens while they are signed in.

A page of the dashboard has the cookie of a user's session in place of a key, with the rights of the user's role: a
viewer reads; an editor also changes agents, tools, knowledge and sounds, and handles calls; an owner may do what a key
may. An operator of the server is an owner in every organization, and chooses one by its id in `X-Organization`.

## Errors

The body of an error is `{error: "..."}`. Wrong fields get 400 with `error: "Validation failed"` and `details`, one
entry for each problem: `field` is the path of the field, as in `config.headers.0.key`, or the name of a parameter or
header. The `details` of a 401 say whether the key is missing or invalid, or why a signed link is invalid; those
of a 403 name the field whose value the operator does not permit, or `role`.

## Headers and rate limits

A key may send 100 requests in a window of 60 seconds unless it has a rate limit of its own; requests without a valid
key count for the client's address. Every response has `X-RateLimit-Limit`, `X-RateLimit-Remaining` and
`X-RateLimit-Reset`. A request over the limit gets 429 with `Retry-After` and `retryAfter`. `X-Request-Id` identifies
the request in the server's log; a client may choose it.

## Idempotency

A POST may have an `Idempotency-Key`. A request with the same key and path within 24 hours gets the first response
again, byte for byte, with `Idempotent-Replay: true`; its body is ignored, and nothing is created again. Responses with
401, 429 and 5xx are not stored.

## Quotas

An organization has limits for the numbers of its agents, tools, documents, sounds and phone numbers (exceeded: 403),
and for the bytes of documents, sounds and responses stored for idempotency (exceeded: 413). `quota` in the response
names the quota and its usage. While the server's disk is almost full, requests that would store more get 507; calls
and DELETE go on.
"""
TAGS: Final = {
    "Agents": "Voice agents: prompt, voice, tools, turn-taking settings.",
    "Phone numbers": "Phone numbers and extensions, each with its trunk and the agent that answers inbound calls.",
    "Calls": "Inbound and outbound calls: state, transcript, recording, timings, SIP messages and webhooks. "
    "`GET /calls/{id}/listen` is a WebSocket with the audio of a call in progress, as stereo frames.",
    "Live": "What happens now: a stream of events, and the capacity for calls.",
    "Webhooks": "Receivers of the events of all calls of an organization.",
    "Tools": "HTTP requests that agents may make.",
    "Knowledge": "Documents that agents can search.",
    "Background sounds": "Quiet sounds that are mixed with the agent's speech.",
    "Models": "Voices, language models and speech recognizers that calls can have; and, for users with the role "
    "operator alone, the models of the server's machine: what is installed, downloads, imports.",
    "Organization": "The organization of the API key: its limits, the retention of its calls, its API keys.",
    "Users": "The people who sign in to the dashboard, each with a role. An owner and an API key may manage them.",
    "Description": "This document.",
}
STATUS_DESCRIPTIONS: Final = {
    400: "A field or parameter is invalid, or the request is malformed",
    401: "The API key is missing or invalid, the session is over, or the signed link is invalid; `details` has the "
    "reason",
    402: "Insufficient balance",
    403: "The user's role does not permit this, and `error` says which one does; or the CSRF token of a session is "
    "missing or wrong; or the operator does not permit this to the organization; or a quota of it is exceeded",
    404: "No such resource in this organization",
    408: "The body was not received in time",
    409: "Not possible in the current state of the resource",
    413: "The body is too large, or a quota of bytes is exceeded",
    416: "The range is outside of the file",
    429: "Rate limit exceeded",
    500: "Server error",
    503: "Service temporarily unavailable",
    507: "The server's disk is almost full",
}
SECURITY_SCHEMES: Final[dict[str, Any]] = {
    "apiKey": {"type": "http", "scheme": "bearer", "description": "An organization's API key: an owner's rights"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "trunkline_session",
        "description": "The session of a user who has signed in to the dashboard: the rights of the user's role. Over "
        "HTTPS the cookie's name is `__Host-trunkline_session`. An `Authorization` header counts first",
    },
    "csrfToken": {
        "type": "apiKey",
        "in": "header",
        "name": "X-CSRF-Token",
        "description": "`csrfToken` of `GET /api/session`, which every write with a session needs. The request comes "
        "from a page of the server's own origin",
    },
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
RATE_LIMIT_HEADERS: Final = {
    "X-RateLimit-Limit": "Requests in a window of 60 seconds",
    "X-RateLimit-Remaining": "Requests that remain in this window",
    "X-RateLimit-Reset": "Unix time in seconds at which the window ends",
}
IDEMPOTENCY_KEY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Chosen by the client: for 24 hours, a request with the same key gets the same response, and is not "
    "executed again",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"},
    "example": "order-4711",
}
