"""A server for HTTP tools, and the HTTP tools of one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from cryptography.fernet import Fernet

from calls.call_record.context_variables import ContextValue
from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.concurrency import HttpEgressConcurrency
from calls.tools.http_tool import CallContext, HttpTool, ToolHttpAccess
from config.clock import utc_now
from config.secrets import Secrets
from storage.agents.tools import Method, Parameter, StoredTool, ToolConfig
from tests.calls.http_server import LOOPBACK, client_with, serving


@dataclass
class ToolServer:
    """A server that records requests and sends `answer`."""

    answer: web.Response = field(default_factory=lambda: web.json_response({"free": 3}))
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    hold: asyncio.Event | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    origin: str = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.raw_path, dict(request.headers), await request.read()))
        self.arrived.set()
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.gone.set()
            raise
        return self.answer


@dataclass
class HttpTools:
    """Creates the HTTP tools of one call."""

    http_access: ToolHttpAccess
    context: CallContext

    def tool(
        self,
        url: str,
        method: Method = "GET",
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Parameter] = (),
        timeout: int = 5000,
        name: str = "free_berths",
    ) -> HttpTool:
        encrypt = self.http_access.secrets.encrypt
        config: ToolConfig = {
            "url": url,
            "method": method,
            "timeout": timeout,
            "headers": [{"key": key, "value_encrypted": encrypt(value)} for key, value in headers],
            "body": list(body),
        }
        now = utc_now()
        stored = StoredTool(
            id="tool-1", organization_id="org", name="Free berths", config=config, created_at=now, updated_at=now
        )
        return HttpTool(stored, name, self.context, self.http_access)


@asynccontextmanager
async def tool_server(answer: web.Response | None = None) -> AsyncIterator[ToolServer]:
    here = ToolServer() if answer is None else ToolServer(answer)
    async with serving(here.handle) as origin:
        here.origin = origin
        yield here


@asynccontextmanager
async def http_tools(
    rules: HttpEgressRules = LOOPBACK, concurrency: HttpEgressConcurrency | None = None, **values: ContextValue
) -> AsyncIterator[HttpTools]:
    async with client_with(rules) as client:
        yield HttpTools(
            ToolHttpAccess(client, concurrency or HttpEgressConcurrency(), Secrets([Fernet.generate_key()])),
            CallContext("call-1", values),
        )
