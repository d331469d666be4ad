"""`/api/session` and `/api/password`, for the pages of the dashboard: signing in and out, and setting a password."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final, TypeVar

import sqlalchemy as sa
from aiohttp import web
from pydantic import BaseModel

from api.auth.authentication import PASSWORD_PATH, SESSION_PATH
from api.auth.principal import SESSION
from api.auth.same_origin import require_same_origin
from api.auth.session_authentication import ORGANIZATION_HEADER
from api.auth.session_cookie import all_session_tokens, browser_text, delete_session_cookies, set_cookies
from api.auth.sign_in import SignIn
from api.routing.validation import check_body, read_body
from api.schemas.base import BodyContext
from api.schemas.sessions import OrganizationName, PasswordBody, SessionView, SignInBody
from api.services import Services
from config.errors import FieldProblem, Unauthorized
from storage.accounts import organizations
from storage.users.sessions import Session
from storage.users.users import User

MAX_BODY: Final = 16 * 1024
"""Bytes."""
M = TypeVar("M", bound=BaseModel)


def add_session_routes(app: web.Application, services: Services, sign_in: SignIn, now_s: Callable[[], float]) -> None:
    """Add the routes. `now_s` is the clock of the limits, in seconds since 1970."""
    routes = _SessionRoutes(services, sign_in, now_s)
    app.router.add_get(SESSION_PATH, routes.get)
    app.router.add_post(SESSION_PATH, routes.begin)
    app.router.add_delete(SESSION_PATH, routes.end)
    app.router.add_post(PASSWORD_PATH, routes.set_password)


class _SessionRoutes:
    def __init__(self, services: Services, sign_in: SignIn, now_s: Callable[[], float]) -> None:
        self._services = services
        self._sign_in = sign_in
        self._now_s = now_s
        self._body_context = BodyContext.of(services.settings)

    async def get(self, request: web.Request) -> web.Response:
        """Who is signed in."""
        return _json(await self._view(request, _session(request)))

    async def begin(self, request: web.Request) -> web.Response:
        """Sign in. The browser's earlier sessions end."""
        require_same_origin(request, self._services.settings.public_origin)
        body = await self._body(request, SignInBody)
        signed_in = await self._sign_in.sign_in(
            body.username,
            body.password,
            address=request.remote or "",
            browser=browser_text(request),
            now_s=self._now_s(),
        )
        await self._end_earlier(request)
        session = await self._sign_in.find(signed_in.session_token)
        if session is None:
            raise _not_signed_in()  # the user was disabled meanwhile
        response = _json(await self._view(request, session))
        set_cookies(request, response, signed_in, self._services.settings.dashboard.session_max_s)
        return response

    async def end(self, request: web.Request) -> web.Response:
        """Sign out of the sessions of both of the browser's cookies; with `all=true`, everywhere."""
        everywhere = request.query.get("all") == "true"
        await self._sign_in.sign_out(_session(request), everywhere=everywhere, address=request.remote or "")
        await self._end_earlier(request)
        response = web.Response(status=HTTPStatus.NO_CONTENT)
        delete_session_cookies(request, response)
        return response

    async def set_password(self, request: web.Request) -> web.Response:
        """Set the password of the user whom a link belongs to, and sign the user in: the browser's earlier session
        ends."""
        require_same_origin(request, self._services.settings.public_origin)
        body = await self._body(request, PasswordBody)
        signed_in = await self._sign_in.set_password(body.token, body.password, address=request.remote or "")
        await self._end_earlier(request)
        response = web.Response(status=HTTPStatus.NO_CONTENT)
        set_cookies(request, response, signed_in, self._services.settings.dashboard.session_max_s)
        return response

    async def _body(self, request: web.Request, model: type[M]) -> M:
        return check_body(model, await read_body(request, MAX_BODY), self._body_context)

    async def _end_earlier(self, request: web.Request) -> None:
        for token in all_session_tokens(request):
            earlier = await self._sign_in.find(token)
            if earlier is not None:
                await self._sign_in.end(earlier)

    async def _view(self, request: web.Request, session: Session) -> SessionView:
        chosen = request.headers.get(ORGANIZATION_HEADER, "").lower()
        choice = await self._services.database.read(lambda conn: _choice_of(conn, session.user))
        is_operator = session.user.organization_id is None
        return SessionView(
            user=session.user.name,
            role=session.user.role,
            organization=next((each for each in choice if each.id == chosen), choice[0] if choice else None),
            organizations=choice if is_operator else None,
            csrf_token=self._sign_in.csrf_token(session),
        )


def _choice_of(conn: sa.Connection, user: User) -> tuple[OrganizationName, ...]:
    """The organizations that a user can work in."""
    if user.organization_id is None:
        return tuple(map(OrganizationName.model_validate, organizations.all_of(conn)))
    own = organizations.get(conn, user.organization_id)
    return () if own is None else (OrganizationName.model_validate(own),)


def _session(request: web.Request) -> Session:
    if SESSION not in request:
        raise _not_signed_in()
    return request[SESSION]


def _not_signed_in() -> Unauthorized:
    return Unauthorized(FieldProblem("Cookie", "There is no session: sign in"), "Not signed in")


def _json(view: SessionView) -> web.Response:
    body = b'{"data":' + view.__pydantic_serializer__.to_json(view, by_alias=True, exclude_none=False) + b"}"
    return web.Response(body=body, content_type="application/json", charset="utf-8")
