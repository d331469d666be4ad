"""Handler of `/audit`."""

from __future__ import annotations

from api.auth.principal import PRINCIPAL
from api.routing.route import PageResponse, RequestContext, Route, ViewPage
from api.schemas.audit import AuditEntryView, AuditQuery
from storage.accounts import audit_log


def page(context: RequestContext[None, AuditQuery]) -> ViewPage:
    """GET /audit"""
    query = context.query
    is_installation = query.scope == "installation"
    if is_installation and context.http is not None:
        context.http[PRINCIPAL].require_role("operator")
    found = audit_log.page(
        context.conn,
        None if is_installation else context.owner,
        limit=query.limit,
        offset=query.offset,
        entry_filter=query.filter(),
    )
    return ViewPage(map(AuditEntryView.of, found.items), found.total)


ROUTES = (
    Route(
        method="GET",
        path="/audit",
        name="listAuditEntries",
        role="owner",
        tag="Organization",
        summary="List who changed what, newest first",
        description="Each write over the API, each sign-in, failed or not, each time someone listened to a call, and "
        "the changes of commands make one entry, which is deleted after [audit] keep_days. A request that is refused "
        "or fails makes none.",
        handler=page,
        query=AuditQuery,
        response=PageResponse(AuditEntryView),
        errors=(403,),
    ),
)
