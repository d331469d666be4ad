"""What the house's HTTP clients are made of."""

from __future__ import annotations

import asyncio
import ssl

from calls.egress.address_rules import EgressRules
from calls.egress.client import EgressClient, tls_context
from config.errors import StartupError
from config.settings import Settings


def egress_rules(settings: Settings) -> EgressRules:
    """`[egress]`"""
    return EgressRules([str(each) for each in settings.egress.allow], [str(each) for each in settings.egress.deny])


async def egress_tls(settings: Settings) -> ssl.SSLContext:
    """The authorities that are trusted. Raises `StartupError`."""
    ca_file = settings.webhooks.ca_file
    try:
        return await asyncio.to_thread(tls_context, str(ca_file) if ca_file else None)
    except OSError as error:
        raise StartupError(f"webhooks.ca_file {ca_file} cannot be used: {error}") from error


async def egress_client(settings: Settings) -> EgressClient:
    """A client of its own. Raises `StartupError`."""
    return EgressClient(egress_rules(settings), await egress_tls(settings))
