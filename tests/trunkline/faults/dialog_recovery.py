"""The restart of a killed server, and the peers whose dialogs it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

from storage.calls.dialog_journal import FOLDER
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.sipcore.raw.raw_registrar import challenge, is_authenticated
from tests.trunkline.server_process import Server
from tests.trunkline.sip_phone import PhoneCall, answer_200

WITHIN_S = 5.0
USER, PASSWORD = "trunk", "a-long-password"
"""Of trunks whose peers challenge BYE."""


async def restart(server: Server, *ends: Awaitable[Message]) -> list[Message]:
    """Start the killed server; returns the requests that end the legs, which must come within 5 s of when it has read
    the dialogs."""
    server.log.begin()
    starting = asyncio.create_task(server.start())
    await server.event("dialogs.orphaned", since=server.log.mark(), timeout_s=40)
    async with asyncio.timeout(WITHIN_S):
        found = await asyncio.gather(*ends)
    await starting
    return found


async def bye(phone: RawPhone) -> Message:
    """Wait for BYE, and accept it."""
    request = await phone.next_request("BYE")
    phone.send(answer_200(request))
    return request


async def challenged_bye(phone: RawPhone, status: int) -> Message:
    """Challenge the BYE, and accept it with the right credentials."""
    first = await phone.next_request("BYE")
    reason = "401 Unauthorized" if status == 401 else "407 Proxy Authentication Required"
    phone.reply(first, reason, challenge("nonce", proxy=status == 407))
    second = await phone.next_request("BYE")
    assert is_authenticated(second, USER, PASSWORD)
    assert int(second.header("CSeq").split()[0]) > int(first.header("CSeq").split()[0])
    phone.send(answer_200(second))
    return first


async def cancelled(callee: RawCallee) -> Message:
    """Wait for CANCEL, accept it, and end the INVITE, which is acknowledged."""
    request = await callee.next_request("CANCEL")
    callee.accept(request)
    callee.reject("487 Request Terminated")
    await callee.next_request("ACK")
    return request


def assert_in_dialog(request: Message, call: PhoneCall) -> None:
    assert request.header("Call-ID") == call.sip_call_id
    assert f"tag={call.dialog.tag}" in request.header("To")
    assert 'Q.850;cause=41;text="Temporary failure"' in request.header("Reason")


def entries(server: Server) -> list[Path]:
    folder = server.data_dir / FOLDER
    return sorted(folder.iterdir()) if folder.is_dir() else []
