"""The example of docs/how-to/tools.md, executed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from aiohttp import web
from cryptography.fernet import Fernet

from api.schemas.tools import ToolCreate
from calls.http_egress.concurrency import HttpEgressConcurrency
from calls.tools.http_tool import CallContext, HttpTool, ToolHttpAccess
from calls.tools.toolset import ToolSet, function_name
from config.clock import utc_now
from config.secrets import Secrets
from models.protocols import ToolCall
from storage.agents.tools import StoredTool
from tests.calls.http_server import LOOPBACK, client_with, serving

GUIDE = (Path(__file__).parents[3] / "docs/how-to/tools.md").read_text()
PARTS = dict(re.findall(r"^```\w+ (\w+)\n(.*?)\n```", GUIDE, re.MULTILINE | re.DOTALL))


async def test_the_request_of_the_example_is_sent_and_its_response_returned() -> None:
    asked: list[web.Request] = []

    async def answers(request: web.Request) -> web.Response:
        asked.append(request)
        return web.Response(text='{ "free": 3 }', content_type="application/json")

    secrets, now = Secrets([Fernet.generate_key()]), utc_now()
    async with serving(answers) as origin, client_with(LOOPBACK) as client:
        place = origin.removeprefix("http://")
        given = json.loads(PARTS["tool"])
        given["config"]["url"] = given["config"]["url"].replace("{{office_host}}", "{{office_host}}:{{port}}")
        fields = ToolCreate.model_validate(given).to_store(secrets)
        stored = StoredTool(**fields, id="t", organization_id="o", created_at=now, updated_at=now)
        values = json.loads(PARTS["variables"]) | dict(zip(("office_host", "port"), place.split(":"), strict=True))
        name = function_name(stored.name, ())
        assert f"`{name}`" in GUIDE
        tool = HttpTool(
            stored, name, CallContext("c", values), ToolHttpAccess(client, HttpEgressConcurrency(), secrets)
        )
        result = await ToolSet([tool]).run(ToolCall("1", name, PARTS["arguments"]))
    assert (result.content, result.ok) == (PARTS["result"], True)
    (request,) = asked
    first, *headers = PARTS["request"].splitlines()
    assert f"{request.method} {request.raw_path}" == first
    sent = {f"{key}: {value}" for key, value in request.headers.items()}
    assert {header.replace("office.example", place) for header in headers} <= sent
