"""A complete server in the process of the tests, with models that a test controls (`tests.fakes.fake_models`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import structlog

from config.settings import Settings
from models.loading.catalogue import Catalogue
from storage.accounts import api_keys, organizations
from tests.fakes.fake_models import PromptedLlm, ready_models
from tests.trunkline.api_client import Client
from tests.trunkline.initial_data import copy_initial_data
from tests.trunkline.server_process import LOOPBACK, JsonLines, merged
from tests.trunkline.sip_phone import known
from trunkline.server.server import Server
from trunkline.server.startup import running_server


@dataclass
class LocalServer:
    """The server in this process, an API client, its log, and its language model."""

    server: Server
    client: Client
    log: JsonLines
    language: PromptedLlm
    numbers: int = 300

    @property
    def target(self) -> str:
        """The server's SIP address."""
        return f"127.0.0.1:{self.server.sip_port}"

    async def number_with_agent(self, prompt: str, **agent: Any) -> str:
        """Create a number with an agent whose language model responds with the prompt; returns the number."""
        self.numbers += 1
        number = str(self.numbers)
        await self.client.number(number, await self.client.agent(systemPrompt=prompt, **agent))
        return number

    async def answered(self, since: int = 0) -> str:
        """Wait for the first answered call since that log position; returns its id."""
        return str((await self.log.event("call.answered", since=since))["call_id"])

    async def ended(self, call_id: str) -> dict[str, Any]:
        """Wait for the end of a call; returns it from the API."""
        await self.log.event("call.ended", call_id=call_id)
        return await self.client.call(call_id)


@asynccontextmanager
async def open_local_server(
    data_dir: Path,
    made: Callable[[Settings], Catalogue] = ready_models,
    *,
    prepare: Callable[[Settings], Awaitable[None]] | None = None,
    **settings: Any,
) -> AsyncIterator[LocalServer]:
    """Start a server on a copy of the initial data, with other models and changed settings. `prepare` runs before the
    start. Log events are also collected in `log`."""
    copy_initial_data(data_dir)
    loop, log = asyncio.get_running_loop(), JsonLines("the server")
    log.begin()

    def keep(_: object, level: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        loop.call_soon_threadsafe(log.take, json.dumps({**event, "level": level}, default=repr))
        return event

    before = structlog.get_config()
    structlog.configure(processors=[keep, *before["processors"]])
    loaded: list[Catalogue] = []

    def load(settings: Settings) -> Catalogue:
        loaded.append(made(settings))
        return loaded[0]

    changes = merged(merged(LOOPBACK, {"sip": {"port": 0}, "api": {"port": 0}}), settings)
    wanted = Settings(data_dir=data_dir).with_changes(changes)
    if prepare is not None:
        await prepare(wanted)
    async with running_server(wanted, load) as server:
        owner = await server.database.write(lambda conn: organizations.create(conn, "place"))
        _, key = await server.database.write(lambda conn: api_keys.create(conn, owner.id))
        language = cast(PromptedLlm, loaded[0].llm(None))  # tests of others do not ask it
        async with Client(server.api_origin, key, set()) as client:
            local_server = LocalServer(server, client, log, language)
            await local_server.number_with_agent("")
            await known(local_server.target)
            yield local_server
    structlog.configure(**before)
