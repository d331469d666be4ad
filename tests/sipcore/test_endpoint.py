"""Start, stop, errors of the program above; and the threads of events."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from config.errors import StartupError
from sipcore.dialogs.call_registry import CallRegistry
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from sipcore.security.digest import Credentials
from sipcore.settings import EndpointSettings
from sipcore.trunks.trunk import Trunk
from tests.peers.ports import free_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone

PCMU = EndpointSettings(codecs=("PCMU",), max_calls=10)


def authenticated_trunk() -> Trunk:
    """A trunk with an account of its own, because of its credentials."""
    return Trunk(
        key="ann", host="127.0.0.1", port=free_port(), transport="udp", outbound_proxy=None, user="100",
        credentials=Credentials("ann", "secret"), registers=False, follow_redirects=False, accept_refer=False,
        qualify_s=0, number="100",
    )  # fmt: skip


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["udp", "tcp"])
async def test_port_in_use_raises_startup_error_with_the_setting(kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", free_port()))
        if kind == socket.SOCK_STREAM:
            other.listen()
        port = other.getsockname()[1]
        endpoint = Endpoint(EndpointSettings(host="127.0.0.1", port=port, codecs=("PCMU",)), lambda leg: None)
        with pytest.raises(StartupError) as error:
            await endpoint.start()
    assert "\n" not in str(error.value)
    for part in (str(port), "127.0.0.1", "TRUNKLINE_SIP__PORT", "already in use"):
        assert part in str(error.value)


async def test_start_succeeds_after_a_failed_start() -> None:
    port = free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", port))
        with pytest.raises(StartupError):
            await Endpoint(EndpointSettings(host="127.0.0.1", port=port), lambda leg: None).start()
    async with Phone(PCMU) as phone:
        await (await phone.call()).end()


async def test_repeated_start_and_close_leak_no_thread_or_descriptor() -> None:
    def threads() -> set[str]:
        names = set()
        for path in Path("/proc/self/task").glob("*/comm"):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has just ended
                names.add(path.read_text().strip())
        return names

    before = threads()
    descriptors = []
    for _ in range(4):
        async with Phone(PCMU) as phone:
            await (await phone.call()).end()
            await (await phone.call(";transport=tcp")).end()
            assert {"pump-0", "pjsua_0"} <= threads()
        assert threads() == before
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("sip-")]
        descriptors.append(len(os.listdir("/proc/self/fd")))
    assert descriptors[1:] == descriptors[:1] * 3


async def test_an_endpoint_whose_calls_cannot_be_ended_is_destroyed_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_registry: CallRegistry, _timeout_s: float) -> None:
        raise RuntimeError("no calls can be ended")

    settings = EndpointSettings(host="127.0.0.1", port=free_port(), codecs=("PCMU",), max_calls=10)
    endpoint = Endpoint(settings, lambda leg: None)
    await endpoint.start()
    with monkeypatch.context() as broken, pytest.raises(RuntimeError, match="no calls can be ended"):
        broken.setattr(CallRegistry, "hang_up_all", fail)
        await endpoint.close()
    async with Phone(PCMU) as phone:
        assert phone.endpoint.live_legs == 0


async def test_the_objects_of_calls_that_have_not_ended_are_dropped_with_the_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What holds such an object, a traceback for example, must not reach the call of the next endpoint that has its
    number."""

    async def leave_them(_registry: CallRegistry, _timeout_s: float) -> None:
        return

    monkeypatch.setattr(CallRegistry, "hang_up_all", leave_them)
    async with Phone(PCMU) as phone:
        await phone.call()
        registry = phone.endpoint._call_registry
        assert registry is not None
        kept = list(registry._calls.values())
        destroy, left = phone.endpoint._destroy_on_pjsip_thread, list[object]()

        def destroy_and_look() -> None:
            destroy()
            left.extend((*registry._calls.values(), *registry._dialogs.values()))
            left.extend(each for each in kept if each.driver is not None)

        monkeypatch.setattr(phone.endpoint, "_destroy_on_pjsip_thread", destroy_and_look)
    assert (len(kept), left) == (2, [])
    monkeypatch.undo()
    async with Phone(PCMU) as phone:
        call = await phone.call()
        kept.clear()
        gc.collect()
        assert phone.endpoint.live_legs == 2
        await call.end()


async def test_account_objects_of_a_closed_endpoint_delete_no_account() -> None:
    """A traceback may hold them, for example; PJSUA reuses their numbers for the accounts of the next endpoint."""
    async with Phone(PCMU) as former:
        await former.endpoint.set_trunks([authenticated_trunk()])
        entries = former.endpoint._started_trunk_accounts()._entries.values()
        kept = [*former.endpoint._accounts.values(), *(entry.account for entry in entries)]
    assert len(kept) == 2
    async with Phone(PCMU) as phone:
        numbers = [account.getId() for account in phone.endpoint._accounts.values()]
        await phone.endpoint.set_trunks([authenticated_trunk()])
        kept.clear()
        gc.collect()
        await (await phone.call()).end()
        (entry,) = phone.endpoint._started_trunk_accounts()._entries.values()
        assert entry.account is not None and entry.account.isValid() and entry.account_id not in numbers


async def test_close_ends_live_calls_and_is_idempotent() -> None:
    async with Phone(PCMU) as phone, RawPhone(phone.target) as raw:
        dialog = raw.dialog()
        raw.invite(dialog, raw.offer("0"))
        leg = await phone.next_leg()
        answering = asyncio.create_task(leg.answer())
        await raw.complete_invite(dialog)
        media = await answering
        ringing = raw.dialog()
        raw.invite(ringing, raw.offer("0"))
        waiting = await phone.next_leg()
        closing = asyncio.create_task(phone.endpoint.close())
        said = [await raw.next_message() for _ in range(4)]
        await closing
        await phone.endpoint.close()
        assert leg.ended.done() and not leg.ended.result().by_peer
        assert waiting.ended.done()
        assert any(message.first_line.startswith("BYE ") for message in said)
        assert any(message.status == 603 for message in said)
        with pytest.raises(KeyError):
            phone.pump.rate(media.slot)
        await leg.hangup()


async def test_events_arrive_on_the_event_loop() -> None:
    threads: list[int] = []
    async with Phone(PCMU) as phone:

        def on_incoming(leg: Leg) -> None:
            asyncio.get_running_loop()
            threads.append(threading.get_ident())
            leg.ended.add_done_callback(lambda _: threads.append(threading.get_ident()))
            phone.incoming.put_nowait(leg)

        phone.endpoint._call_registry._on_incoming = on_incoming  # type: ignore[union-attr]
        call = await phone.call()
        await call.end()
    assert set(threads) == {threading.get_ident()}
    assert len(threads) == 2


async def test_error_in_on_incoming_ends_only_that_call_with_500() -> None:
    legs: asyncio.Queue[Leg] = asyncio.Queue()

    def on_incoming(leg: Leg) -> None:
        if leg.facts.request_user == "broken":
            raise ValueError("no such luck")
        legs.put_nowait(leg)

    port = free_port()
    endpoint = Endpoint(EndpointSettings(host="127.0.0.1", port=port, codecs=("PCMU",), max_calls=10), on_incoming)
    await endpoint.start()
    endpoint.set_sources(["127.0.0.1"])
    async with RawPhone(f"127.0.0.1:{port}") as raw:
        with capture_logs() as logs:
            dialog = raw.dialog()
            dialog.target = f"sip:broken@127.0.0.1:{port}"
            raw.invite(dialog, raw.offer("0"))
            assert (await raw.final_response("INVITE")).status == 500
        assert [line["event"] for line in logs] == ["sip.incoming_failed"]
        assert logs[0]["sip_call_id"] == dialog.call_id
        dialog = raw.dialog()
        raw.invite(dialog, raw.offer("0"))
        leg = await asyncio.wait_for(legs.get(), 5)
        answering = asyncio.create_task(leg.answer())
        await raw.complete_invite(dialog)
        await answering
        await raw.bye(dialog)
    await endpoint.close()


async def test_unusable_address_raises_invite_error() -> None:
    async with Phone(PCMU) as phone:
        for uri, kind in (
            ("not a uri", "rejected_locally"),
            ("sip:", "no_local_address"),
            ("mailto:a@b", "rejected_locally"),
        ):
            with pytest.raises(InviteError, match="no INVITE could be sent") as caught:
                await phone.endpoint.call(uri)
            assert caught.value.kind == kind
        assert phone.endpoint.live_legs == 0
        with pytest.raises((InviteError, ConnectionError)):  # at once, or when the connection is refused a moment later
            leg = await phone.endpoint.call(f"sip:x@127.0.0.1:{free_port()};transport=tcp")
            await asyncio.wait_for(leg.wait_connected(), 10)
