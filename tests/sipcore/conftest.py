"""A process has one PJSUA: each test module has one endpoint, with the settings in its `SETTINGS`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sipcore.settings import EndpointSettings
from tests.sipcore.loopback_phone import Phone


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def phone(request: pytest.FixtureRequest) -> AsyncIterator[Phone]:
    """The module's endpoint, started."""
    settings = getattr(request.module, "SETTINGS", EndpointSettings(codecs=("PCMU",), max_calls=40))
    async with Phone(settings, getattr(request.module, "HOST", "127.0.0.1")) as phone:
        yield phone
