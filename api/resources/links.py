"""Absolute URLs in responses. Signed ones open without an API key."""

from __future__ import annotations

import re
from typing import Any, Final

from aiohttp import web

from api.auth.principal import PRINCIPAL
from api.routing.route import RequestContext
from api.schemas.addresses import HOST_NAME, IPV4, IPV6, PORT
from config.clock import utc_now
from config.errors import FieldProblem, Invalid
from config.signed_links import signed_url

HOST_HEADER: Final = re.compile(rf"({HOST_NAME}|{IPV4}|\[({IPV6})\])(:({PORT})?)?")
LINK_DESCRIPTION: Final = "Requires the API key, or the expiry and signature of a link from the server."


def signed_link(context: RequestContext[Any, Any], path: str) -> str:
    """Returns the absolute, signed URL of `path`. Its origin is `[api] public_url`, else the one of the request, or of
    this machine for a command."""
    return signed_url(context.services.secrets, request_origin(context), path, utc_now())


def call_link(context: RequestContext[Any, Any], path: str) -> str:
    """Returns the absolute URL of what a call has at `path`: signed for programs; for users, whose access ends with
    their session, one that opens with the session alone."""
    principal = None if context.http is None else context.http.get(PRINCIPAL)
    if principal is not None and principal.session is not None:
        return request_origin(context) + path
    return signed_link(context, path)


def request_origin(context: RequestContext[Any, Any]) -> str:
    """Returns the origin of links to this server: `[api] public_url`, else that of the request, or of this machine for
    a command."""
    settings = context.services.settings
    return settings.public_origin if settings.api.public_url or context.http is None else _origin_of(context.http)


def _origin_of(request: web.Request) -> str:
    """The origin of the request's Host header."""
    if HOST_HEADER.fullmatch(request.host) is None:
        raise Invalid([FieldProblem("Host", "Must be host or host:port")])
    return str(request.url.origin())
