"""Runs an operation of the API, for a request or a command: preparation, the transaction with the handler in it, and
what follows the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
import structlog

from api.routing.route import CheckedRequest, RequestContext, Route
from api.services import Services
from api.serving.audit import WriteAudit
from storage.accounts import quotas
from storage.database.errors import StorageUnavailable

R = TypeVar("R")
log = structlog.get_logger()


def _no_earlier_result(_conn: sa.Connection) -> None:
    return None


class Operation:
    """One route with the services that it uses."""

    def __init__(self, route: Route, services: Services) -> None:
        self._route = route
        self._services = services

    async def run(
        self,
        checked: CheckedRequest[Any, Any],
        finish: Callable[[RequestContext[Any, Any], Any], R],
        *,
        find_earlier: Callable[[sa.Connection], R | None] = _no_earlier_result,
        writes: bool = False,
        more_quotas: Sequence[str] = (),
    ) -> R:
        """Returns what `finish` makes of the handler's result, in the same transaction, which also stores the audit
        log's entry of a write. A result of `find_earlier` replaces them. The handler's callbacks follow the commit; if
        the transaction fails, the preparation is undone. `writes`: `finish` writes, even if the route only reads.
        `more_quotas` count beside the route's own. Raises what the route raises, and `QuotaExceeded`."""
        route, database = self._route, self._services.database
        prepared = None if route.prepare is None else await self._prepare(checked)
        limits = self._services.settings.quotas.model_dump()
        quota_names = (*route.quotas, *more_quotas)
        after_commit: list[Callable[[], None]] = []
        after_rejection: list[Callable[[sa.Connection], None]] = []
        is_earlier = False

        def run_handler(conn: sa.Connection) -> R:
            nonlocal is_earlier
            is_earlier = False  # it may run again, after a rollback
            after_commit.clear()
            after_rejection.clear()
            if (earlier := find_earlier(conn)) is not None:
                is_earlier = True
                return earlier
            usage_before = quotas.usage(conn, checked.owner, limits) if quota_names else {}
            context = RequestContext(
                **checked.__dict__,
                conn=conn,
                prepared=prepared,
                after_commit=after_commit,
                after_rejection=after_rejection,
            )
            audit = WriteAudit(route, context) if route.writes else None
            handled = route.handler(context)
            if audit is not None:
                audit.record(handled)
            result = finish(context, handled)
            if quota_names:
                quotas.require_within_quota(usage_before, quotas.usage(conn, checked.owner, limits), quota_names)
            return result

        try:
            transaction = database.write if route.writes or writes else database.read
            result = await transaction(run_handler, owner=checked.organization_id)
        except Exception as error:
            if not (isinstance(error, StorageUnavailable) and error.outcome_unknown):
                await self._undo(checked, prepared)
            await self.write_audit(after_rejection, checked.organization_id)
            raise
        if is_earlier:
            await self._undo(checked, prepared)
        else:
            self._run_after_commit(after_commit)
        return result

    async def write_audit(self, writes: Sequence[Callable[[sa.Connection], None]], owner: str | None) -> None:
        """Run writes to the audit log; a failure is logged."""
        for write in writes:
            try:
                await self._services.database.write(write, owner=owner)
            except Exception:  # the request is rejected all the same
                log.exception("api.refusal_not_noted", route=self._route.name)

    async def _prepare(self, checked: CheckedRequest[Any, Any]) -> Any:
        """Runs the route's `prepare`, unless a quota is used up already."""
        route, limits = self._route, self._services.settings.quotas.model_dump()
        if route.quotas_of_prepare:
            read_usage = partial(quotas.usage, organization_id=checked.owner, defaults=limits)
            usage = await self._services.database.read(read_usage, owner=checked.owner)
            quotas.require_available(usage, route.quotas_of_prepare)
        assert route.prepare is not None
        return await route.prepare(checked)

    async def _undo(self, checked: CheckedRequest[Any, Any], prepared: Any) -> None:
        if self._route.undo is None:
            return
        try:
            await self._route.undo(checked, prepared)
        except Exception:  # the client gets the error of the transaction, not this one
            log.exception("api.undo_failed", route=self._route.name)

    def _run_after_commit(self, callbacks: list[Callable[[], None]]) -> None:
        for callback in callbacks:
            try:
                callback()
            except Exception:  # the work is stored, so the request has succeeded
                log.exception("api.follow_up_failed", route=self._route.name)
