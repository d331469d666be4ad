"""Requests that come while the server starts: known sources get 503 until the models are loaded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from config.settings import Settings
from models.loading.catalogue import Catalogue
from storage.accounts import api_keys, organizations
from tests.fakes.fake_models import ready_models
from tests.peers.ports import free_port
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.sipcore.raw.raw_stream_phone import StreamPhone
from tests.trunkline.api_client import Client
from tests.trunkline.initial_data import copy_initial_data
from tests.trunkline.server_process import LOOPBACK, merged
from tests.trunkline.sip_phone import calling, dialled, known
from trunkline.server.startup import running_server

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def settings_with_number(folder: Path) -> Settings:
    """A stopped server's settings, with the number 100 of an agent in its database."""
    copy_initial_data(folder)
    changes = merged(LOOPBACK, {"sip": {"port": free_port()}, "api": {"port": 0}})
    settings = Settings(data_dir=folder).with_changes(changes)
    async with running_server(settings, ready_models) as server:
        owner = await server.database.write(lambda conn: organizations.create(conn, "office"))
        _, key = await server.database.write(lambda conn: api_keys.create(conn, owner.id))
        async with Client(server.api_origin, key, set()) as client:
            await client.number("100", await client.agent())
    return settings


@asynccontextmanager
async def loading(settings: Settings) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """A server whose models are loaded when the yielded function is called, which waits until the server is ready."""
    loaded, ready, stop = threading.Event(), asyncio.Event(), asyncio.Event()

    def load(settings: Settings) -> Catalogue:
        loaded.wait()
        return ready_models(settings)

    async def serve() -> None:
        async with running_server(settings, load):
            ready.set()
            await stop.wait()

    async def load_now() -> None:
        loaded.set()
        is_ready = asyncio.create_task(ready.wait())
        await asyncio.wait((is_ready, serving), return_when=asyncio.FIRST_COMPLETED)
        is_ready.cancel()

    serving = asyncio.create_task(serve())
    try:
        yield load_now
    finally:
        loaded.set()
        stop.set()
        await serving


async def refused(phone: RawPhone, method: str, *headers: str) -> Message:
    """Send a request outside of dialogs; returns its final response."""
    dialog = dialled(phone, "100")
    branch, offer = phone.branch(), phone.offer() if method == "INVITE" else ""
    phone.send(phone.request(method, dialog, body=offer, branch=branch, headers=headers))
    response = await phone.final_response(method)
    if method == "INVITE":
        phone.acknowledge(dialog, response, branch)
    return response


async def test_known_sources_get_503_until_the_models_are_loaded(
    tmp_path: Path, blocking_the_loop_fails: BlockBuster
) -> None:
    blocking_the_loop_fails.deactivate()
    settings = await settings_with_number(tmp_path / "data")
    target = f"127.0.0.1:{settings.sip.port}"
    async with loading(settings) as load_now:
        await known(target)
        async with RawPhone(target) as phone, StreamPhone(target) as stream, RawPhone(target, "127.0.0.2") as unknown:
            await stream.connect(settings.sip.port)
            unknown.send(unknown.request("OPTIONS", unknown.dialog()))
            for each in (phone, stream):
                for method in ("INVITE", "OPTIONS"):
                    response = await refused(each, method)
                    assert (response.status, response.header("Retry-After")) == (503, "10"), (each.via, method)
                ended = each.dialog()
                ended.to = "<sip:100@127.0.0.1>;tag=of-the-killed-process"
                each.send(each.request("BYE", ended))
                assert (await each.final_response("BYE")).status == 481, each.via
            replaces = await refused(phone, "INVITE", "Replaces: x@y;to-tag=a;from-tag=b")
            assert replaces.status == 481
            assert unknown.sip.received.empty()
        await load_now()
        async with calling(target) as call:
            await call.hang_up()
