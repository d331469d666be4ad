"""Handlers of `/organization`."""

from __future__ import annotations

from typing import Any

from api.routing.route import DataResponse, NoQuery, RequestContext, Route
from api.schemas.organization import Organization, OrganizationUpdate
from storage.accounts import organizations, quotas


def get(context: RequestContext[Any, NoQuery]) -> Organization:
    """GET /organization"""
    return _view(context, _stored(context))


def update(context: RequestContext[OrganizationUpdate, NoQuery]) -> Organization:
    """PATCH /organization"""
    stored = _stored(context)
    given = context.body.model_dump(exclude_unset=True)
    changes = {name: value for name, value in given.items() if getattr(stored, name) != value}
    return _view(context, organizations.change(context.conn, stored, changes) if changes else stored)


def _stored(context: RequestContext[Any, NoQuery]) -> organizations.Organization:
    stored = organizations.get(context.conn, context.owner)
    if stored is None:
        raise RuntimeError(f"the organization {context.owner} of a request does not exist")
    return stored


def _view(context: RequestContext[Any, NoQuery], stored: organizations.Organization) -> Organization:
    settings = context.services.settings
    usage = quotas.usage(context.conn, context.owner, settings.quotas.model_dump())
    return Organization.of(stored, usage.values(), settings)


ROUTES = (
    Route(
        method="GET",
        path="/organization",
        name="getOrganization",
        role="viewer",
        tag="Organization",
        summary="Get the organization of the API key",
        handler=get,
        response=DataResponse(Organization),
    ),
    Route(
        method="PATCH",
        path="/organization",
        name="updateOrganization",
        role="owner",
        tag="Organization",
        summary="Change the retention and redaction of the organization's calls",
        description="A shorter retention deletes what is older within minutes, and nothing restores it. Redaction "
        "holds for calls that end from now on. Plan, balance, ceilings and destinations are the operator's to set.",
        handler=update,
        body=OrganizationUpdate,
        example={"keepRecordingsDays": 30, "redact": True},
        response=DataResponse(Organization),
    ),
)
