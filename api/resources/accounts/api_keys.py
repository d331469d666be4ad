"""Handlers of `/api-keys`."""

from __future__ import annotations

from api.resources.accounts.author import author_of
from api.routing.route import DataResponse, DeletedResponse, ListResponse, NoQuery, RequestContext, Route
from api.schemas.api_keys import ApiKey, ApiKeyCreate, NewApiKey
from config.errors import NotFound
from storage.accounts import api_keys, operator_audit


def create(context: RequestContext[ApiKeyCreate, NoQuery]) -> NewApiKey:
    """POST /api-keys"""
    body, conn, owner = context.body, context.conn, context.owner
    stored, text = api_keys.create(conn, owner, name=body.name, requests_per_minute=body.requests_per_minute)
    _record(context, "key.create", stored)
    return NewApiKey.model_validate({**stored.__dict__, "key": text})


def listing(context: RequestContext[None, NoQuery]) -> list[ApiKey]:
    """GET /api-keys"""
    found = api_keys.all_of(context.conn, context.owner)
    return [ApiKey.model_validate(each) for each in reversed(found) if each.revoked_at is None]


def revoke(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /api-keys/{id}"""
    revoked = api_keys.revoke_of(context.conn, context.owner, context.item)
    if revoked is None:
        raise NotFound("API key not found")
    _record(context, "key.revoke", revoked)


def _record(
    context: RequestContext[ApiKeyCreate, NoQuery] | RequestContext[None, NoQuery], action: str, key: api_keys.ApiKey
) -> None:
    detail = key.prefix if key.name is None else f"{key.prefix} {key.name}"
    operator_audit.record(context.conn, context.owner, actor=author_of(context), action=action, detail=detail)


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
