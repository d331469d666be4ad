"""`kill -9` of a server while a remote language model writes the summary of an ended call: the next start closes the
call with its ended reason, and analyses it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from storage.agents import remote_models
from storage.agents.remote_models import StoredRemoteModel
from tests.trunkline.api_client import Client
from tests.trunkline.server_process import Receiver, Server
from tests.trunkline.sip_phone import calling, known

pytestmark = pytest.mark.asyncio(loop_scope="package")
SUMMARY = "The caller pressed four and two."


class SlowLlmServer:
    """An OpenAI-compatible server that responds only once `may_write` is set."""

    def __init__(self) -> None:
        self.may_write = asyncio.Event()
        self.requested = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        formed = "response_format" in await request.json()
        if formed:
            self.requested.set()
            await self.may_write.wait()
        text = json.dumps({"summary": SUMMARY}) if formed else "Gladly."
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return web.json_response({"object": "chat.completion", "choices": [choice]})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Yields its base URL."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        await runner.cleanup()


async def test_a_call_that_was_being_analysed_is_closed_with_its_reason_and_sent_to_the_webhook_once(
    tmp_path: Path,
) -> None:
    writer = SlowLlmServer()
    async with writer.serving() as base_url, Receiver() as receiver:
        server = Server(tmp_path)
        key = await server.key()
        stored = StoredRemoteModel(name="slow", kind="llm", base_url=base_url, model="m", context_length=4096)
        async with server.database() as database:
            await database.write(lambda conn: remote_models.add(conn, stored))
        async with server, Client(server.origin, key, server.secrets) as client:
            agent_id = await client.agent(postCallSummaryEnabled=True, postCallWebhookUrl=receiver.url)
            await client.number("100", agent_id)
            await known(server.target)
            async with calling(server.target) as phone:
                call_id = (await server.event("call.answered"))["call_id"]
                phone.press("42#")
                await server.event("turn.user", call_id=call_id)
                await phone.hang_up()
            await writer.requested.wait()
            waiting = await client.call(call_id)
            assert (waiting["status"], waiting["endedAt"], waiting["analysis"]) == ("in_progress", None, None)
            assert await client.status("POST", f"calls/{call_id}/hangup") == 409
            await server.kill()
            writer.may_write.set()
            since = server.log.mark()
            await server.start()
            await server.event("call.ended", since=since, call_id=call_id)
            call = await client.call(call_id)
            _, body = await receiver.about(call_id)
        assert (call["status"], call["endedReason"]) == ("completed", "customer_ended")
        assert call["analysis"] == {"summary": SUMMARY, "extractions": {}, "method": "model"}
        assert call["recordingUrl"] is not None
        assert json.loads(body)["summary"] == SUMMARY
        assert len(receiver.received) == 1
