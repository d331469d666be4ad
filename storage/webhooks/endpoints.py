"""Webhook endpoints: addresses that get the events of all calls of an organization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.tables.agent_fields import WebhookEvent
from storage.tables.row_mapping import LazyResultPage, RowMapping
from storage.tables.webhooks import WebhookEndpointFields


@dataclass(frozen=True, kw_only=True)
class WebhookEndpoint(WebhookEndpointFields):
    """A stored endpoint."""

    id: str
    organization_id: str
    created_at: datetime
    updated_at: datetime


_ENDPOINT: Final = RowMapping(WebhookEndpoint, tables.webhook_endpoints)
_t = tables.webhook_endpoints
_d = tables.webhook_deliveries
_OWN: Final = _t.c.organization_id == sa.bindparam("owner")
_ENABLED: Final = sa.select(*_ENDPOINT.columns).where(_OWN, _t.c.enabled).order_by(_t.c.created_at, _t.c.id)
_COUNT: Final = sa.select(sa.func.count()).select_from(_t).where(_OWN)


def create(conn: sa.Connection, organization_id: str, fields: WebhookEndpointFields) -> WebhookEndpoint:
    """Store a new endpoint."""
    at = utc_now()
    endpoint = WebhookEndpoint(
        **asdict(fields), id=str(uuid4()), organization_id=organization_id, created_at=at, updated_at=at
    )
    conn.execute(sa.insert(_t).values(**asdict(endpoint)))
    return endpoint


def count(conn: sa.Connection, organization_id: str) -> int:
    """The number of endpoints of an organization."""
    return conn.execute(_COUNT, {"owner": organization_id}).scalar_one()


def of_event(conn: sa.Connection, organization_id: str, event: WebhookEvent) -> list[WebhookEndpoint]:
    """The enabled endpoints of an organization that get this event, oldest first."""
    found = [_ENDPOINT.build(row) for row in conn.execute(_ENABLED, {"owner": organization_id})]
    return [each for each in found if event in each.events]


def get(conn: sa.Connection, organization_id: str, endpoint_id: str) -> WebhookEndpoint | None:
    """By id, within the organization."""
    query = sa.select(*_ENDPOINT.columns).where(_OWN, _t.c.id == endpoint_id)
    row = conn.execute(query, {"owner": organization_id}).one_or_none()
    return None if row is None else _ENDPOINT.build(row)


def page(conn: sa.Connection, organization_id: str, *, limit: int, offset: int) -> LazyResultPage[WebhookEndpoint]:
    """A page, newest first."""
    query = sa.select(_t.c.id).where(_OWN).order_by(_t.c.created_at.desc(), _t.c.id).limit(limit).offset(offset)
    ids = conn.execute(query, {"owner": organization_id}).scalars().all()
    return LazyResultPage(_ENDPOINT.iter_by_ids(conn, ids), count(conn, organization_id))


def update(
    conn: sa.Connection, organization_id: str, endpoint_id: str, changes: Mapping[str, Any]
) -> WebhookEndpoint | None:
    """Set the fields in `changes` (names as in `WebhookEndpointFields`); None when there is no such endpoint."""
    change = sa.update(_t).where(_t.c.organization_id == organization_id, _t.c.id == endpoint_id)
    row = conn.execute(
        change.values(**{**changes, "updated_at": utc_now()}).returning(*_ENDPOINT.columns)
    ).one_or_none()
    return None if row is None else _ENDPOINT.build(row)


def delete_deliveries(conn: sa.Connection, organization_id: str, endpoint_id: str, limit: int) -> int:
    """Delete deliveries to an endpoint, sent or not. Returns their number."""
    found = sa.select(_d.c.id).where(_d.c.organization_id == organization_id, _d.c.endpoint_id == endpoint_id)
    ids = conn.execute(found.limit(limit)).scalars().all()
    conn.execute(sa.delete(_d).where(_d.c.id.in_(ids)))
    return len(ids)


def delete(conn: sa.Connection, organization_id: str, endpoint_id: str) -> bool:
    """Delete the endpoint, and with it its deliveries, which takes long if they were not deleted before. False when
    there is none."""
    deletion = sa.delete(_t).where(_t.c.organization_id == organization_id, _t.c.id == endpoint_id)
    return conn.execute(deletion).rowcount == 1
