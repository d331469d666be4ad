"""`/ca.crt`: the certificate of the local authority, for devices that are to trust it."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from api.services import Services
from config.errors import NotFound

AUTHORITY_PATH: Final = "/ca.crt"


def add_authority_route(app: web.Application, services: Services) -> None:
    """Add the route `/ca.crt`, which needs no key: browsers offer to install what it returns."""
    settings = services.settings

    async def authority(_request: web.Request) -> web.Response:
        if not settings.api.https_port or settings.api.tls_cert is not None:
            raise NotFound("This server's certificate is not of a local authority")
        try:
            content = await asyncio.to_thread(settings.local_authority_file.read_bytes)
        except FileNotFoundError:
            raise NotFound("There is no local certificate authority") from None
        headers = {"Content-Disposition": 'attachment; filename="trunkline-ca.crt"'}
        return web.Response(body=content, content_type="application/x-x509-ca-cert", headers=headers)

    app.router.add_get(AUTHORITY_PATH, authority)
