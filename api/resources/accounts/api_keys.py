"""Handlers of `/api-keys`."""

from __future__ import annotations

from api.routing.route import DataResponse, DeletedResponse, ListResponse, NoQuery, RequestContext, Route
from api.schemas.api_keys import ApiKey, ApiKeyCreate, NewApiKey
from config.errors import NotFound
from storage.accounts import api_keys


def create(context: RequestContext[ApiKeyCreate, NoQuery]) -> NewApiKey:
    """POST /api-keys"""
    body, conn, owner = context.body, context.conn, context.owner
    stored, text = api_keys.create(conn, owner, name=body.name, requests_per_minute=body.requests_per_minute)
    return NewApiKey.model_validate({**stored.__dict__, "key": text})


def listing(context: RequestContext[None, NoQuery]) -> list[ApiKey]:
    """GET /api-keys"""
    found = api_keys.all_of(context.conn, context.owner)
    return [ApiKey.model_validate(each) for each in reversed(found) if each.revoked_at is None]


def revoke(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /api-keys/{id}"""
    if api_keys.revoke_of(context.conn, context.owner, context.item) is None:
        raise NotFound("API key not found")


ROUTES = (
    Route(
        method="POST",
        path="/api-keys",
        name="createApiKey",
        role="owner",
        tag="Organization",
        summary="Create an API key",
        description="The response has the key's text, which cannot be read again: the server stores its SHA-256 alone.",
        handler=create,
        body=ApiKeyCreate,
        example={"name": "Web shop", "requestsPerMinute": 300},
        response=DataResponse(NewApiKey),
        status=201,
        quotas=("api_keys",),
    ),
    Route(
        method="GET",
        path="/api-keys",
        name="listApiKeys",
        role="viewer",
        tag="Organization",
        summary="List the API keys that have not been revoked, newest first",
        handler=listing,
        response=ListResponse(ApiKey),
    ),
    Route(
        method="DELETE",
        path="/api-keys/{id}",
        name="revokeApiKey",
        action="key.revoke",
        role="owner",
        tag="Organization",
        summary="Revoke an API key",
        description="Requests with it get 401 from now on, also when it is the key of this request. The audit log "
        "keeps its prefix.",
        handler=revoke,
        item="API key",
        response=DeletedResponse(),
    ),
)
