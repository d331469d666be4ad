"""Absolute URLs in responses that open without an API key."""

from __future__ import annotations

import re
from typing import Any, Final

from aiohttp import web

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
