"""Authentication of users by the cookie of their session, with the checks that keep other web pages from using it."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from api.auth.principal import Principal
from api.auth.same_origin import require_same_origin
from api.auth.session_cookie import session_token
from api.auth.sign_in import SignIn
from api.schemas.base import UUID_PATTERN
from api.services import Services
from config.errors import Conflict, FieldProblem, Invalid, NotGranted
from storage.accounts import organizations
from storage.users.sessions import Session

CSRF_HEADER: Final = "X-CSRF-Token"
ORGANIZATION_HEADER: Final = "X-Organization"
ORGANIZATION_PARAMETER: Final = "organization"
"""For WebSockets and media elements, for which a browser cannot set headers."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class SessionAuthenticator:
    """Finds sessions, and who their users are for a request."""

    def __init__(self, services: Services, sign_in: SignIn) -> None:
        self._database = services.database
        self._public_origin = services.settings.public_origin
        self._sign_in = sign_in

    async def find(self, request: web.Request) -> Session | None:
        """Returns the session of the request's cookie; None if there is none, or it is over."""
        token = session_token(request)
        return None if token is None else await self._sign_in.find(token)

    def check_page(self, request: web.Request, session: Session) -> None:
        """Raises `NotGranted` unless the request comes from a page of this server: by its origin, which a browser tells
        with every write and every WebSocket, and for a write by its token."""
        require_same_origin(request, self._public_origin)
        if request.method in SAFE_METHODS:
            return
        if not self._sign_in.is_csrf_token(session, request.headers.get(CSRF_HEADER, "")):
            problem = FieldProblem(CSRF_HEADER, "Must be csrfToken of GET /api/session")
            raise NotGranted([problem], "A write with a session needs its CSRF token")

    async def principal(self, request: web.Request, session: Session) -> Principal:
        """Returns the user in the own organization, or an operator in the one that the request names, else the first.
        Raises `Invalid` for an unknown one, `NotGranted` for another than the user's, `Conflict` if there is none."""
        user = session.user
        chosen = request.headers.get(ORGANIZATION_HEADER) or request.query.get(ORGANIZATION_PARAMETER)
        if user.organization_id is not None:
            if chosen is not None and chosen.lower() != user.organization_id:
                problem = FieldProblem(ORGANIZATION_HEADER, "Only operators can choose another organization")
                raise NotGranted([problem], "This needs the role operator")
            return Principal.of_session(session, user.organization_id)
        return Principal.of_session(session, await self._organization(chosen))

    async def _organization(self, chosen: str | None) -> str:
        if chosen is None:
            every = await self._database.read(organizations.all_of)
            if not every:
                raise Conflict("There is no organization yet: create one with `trunkline org create NAME`")
            return every[0].id
        found = None
        if UUID_PATTERN.fullmatch(chosen) is not None:
            wanted = chosen.lower()
            found = await self._database.read(lambda conn: organizations.get(conn, wanted))
        if found is None:
            raise Invalid([FieldProblem(ORGANIZATION_HEADER, "There is no organization with this id")])
        return found.id
