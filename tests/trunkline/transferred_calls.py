"""Calls with one target for transfers, in a server of the test's process, and what both peers must hear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from media.audio_port import Samples
from tests.sipcore.raw.raw_phone import Message, RawPhone
from tests.sipcore.tones import loudest_hz, tone
from tests.trunkline.recording_analysis import audible
from tests.trunkline.server_in_process import LocalServer
from tests.trunkline.server_process import until
from tests.trunkline.sip_phone import PhoneCall, calling

TARGET = "555"
CALLER_HZ, TARGET_HZ = 1000, 440
PACKETS_PER_S = 50


@dataclass
class TransferredCall:
    """A call of a caller to an agent that has one target for transfers."""

    local_server: LocalServer
    caller: PhoneCall
    call_id: str
    log_start: int

    async def transfer(self, **order: Any) -> dict[str, Any]:
        """Start the transfer; returns it."""
        body = {"target": "support", **order}
        started: dict[str, Any] = await self.local_server.client.v1("POST", f"calls/{self.call_id}/transfer", body)
        return started

    async def shown(self) -> dict[str, Any]:
        """The only transfer of the call, from the API."""
        (transfer,) = (await self.local_server.client.call(self.call_id))["transferCalls"]
        return dict(transfer)

    async def event(self, name: str, **fields: Any) -> dict[str, Any]:
        """Wait for a log event since the call's start."""
        return await self.local_server.log.event(name, since=self.log_start, **fields)

    async def agent_goes_on(self) -> None:
        """Wait for what the agent says after a transfer that did not happen; the hold message was before it."""
        await self.local_server.log.events_of("turn.agent", 2, call_id=self.call_id)

    async def stored(self) -> dict[str, Any]:
        """Wait for the end of the call; returns it from the API."""
        return await self.local_server.ended(self.call_id)


@asynccontextmanager
async def call_with_target(
    local_server: LocalServer,
    target_port: int,
    *,
    mode: str,
    method: str = "bridge",
    number_fields: Mapping[str, Any] = MappingProxyType({}),
    **agent: Any,
) -> AsyncIterator[TransferredCall]:
    """An answered call of a new number, whose trunk is at the target's port. Checks at the end that nothing of the call
    is left and that nothing went wrong in the log. A test that fails leaves no call to its next attempt."""
    local_server.numbers += 1
    number, since = str(local_server.numbers), local_server.log.mark()
    targets = [{"name": "Support", "description": "Faults", "number": TARGET, "mode": mode}]
    agent_id = await local_server.client.agent(systemPrompt="Yes. USE", transferTargets=targets, **agent)
    await local_server.client.number(number, agent_id, sipPort=target_port, sipTransferMethod=method, **number_fields)
    async with calling(local_server.target, number) as caller:
        call_id = await local_server.answered(since)
        try:
            yield TransferredCall(local_server, caller, call_id, since)
        except BaseException:
            await end_all_calls(local_server)
            raise
    await local_server.log.event("call.ended", call_id=call_id)
    await assert_nothing_is_left(local_server, since)


async def end_all_calls(local_server: LocalServer) -> None:
    """End every call, and wait until their ends are stored, at most 10 s."""
    calls = local_server.server.calls
    for call in calls.active_calls():
        call.end("api_hangup")
    with suppress(AssertionError):
        await until(lambda: not calls.active_call_count)


async def assert_nothing_is_left(local_server: LocalServer, since: int) -> None:
    """Assert that no call, slot of the pump or task is left, and that no call was logged with a warning."""
    server = local_server.server
    await until(lambda: not (server.calls.active_call_count or server.endpoint.pump.stats().calls))
    levels = ("warning", "error", "critical")
    wrong = [each for each in local_server.log.events[since:] if each.get("level") in levels and "call_id" in each]
    assert not wrong
    coroutines: list[Any] = [task.get_coro() for task in asyncio.all_tasks()]
    files = [each.cr_code.co_filename for each in coroutines]
    assert not [file for file in files if "/calls/session/" in file and not file.endswith("audio_loop_cache.py")]


def share_of(hertz: float, sound: Samples) -> float:
    """The share of a frequency in the energy of a sound at 8 kHz."""
    spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound)))) ** 2
    at = np.abs(np.fft.rfftfreq(len(sound), 1 / 8000) - hertz) < 10
    return float(spectrum[at].sum() / spectrum.sum())


async def hears_music(caller: PhoneCall, within_s: float = 12) -> Samples:
    """Wait until the caller has heard a second without a pause, as speech has them. Returns it. What comes before may
    be the end of a sentence."""
    since = len(caller.packets)
    while True:
        await caller.hears(10)
        heard = caller.sound(max(since, len(caller.packets) - PACKETS_PER_S))
        if len(caller.packets) - since > PACKETS_PER_S and audible(heard, 8000).mean() > 0.9:
            return heard
        assert len(caller.packets) - since < within_s * PACKETS_PER_S, "no music"


async def assert_they_hear_each_other(caller: PhoneCall, target: PhoneCall) -> None:
    """Both play their tones for 3 s."""
    caller.say(tone(8000, CALLER_HZ, 3))
    target.say(tone(8000, TARGET_HZ, 3))
    await asyncio.gather(caller.hears(50), target.hears(50))
    at_caller, at_target = await asyncio.gather(caller.hears(50), target.hears(50))
    assert loudest_hz(at_caller, 8000) == pytest.approx(TARGET_HZ, abs=5)
    assert loudest_hz(at_target, 8000) == pytest.approx(CALLER_HZ, abs=5)
    await asyncio.gather(caller.has_said(), target.has_said())


async def notify(raw: RawPhone, call: TransferredCall, body: str, state: str) -> int:
    """Send NOTIFY of a REFER; returns the status of its response."""
    dialog = call.caller.dialog
    dialog.cseq += 1
    headers = ("Event: refer", f"Subscription-State: {state}", "Content-Type: message/sipfrag;version=2.0")
    head = raw.request("NOTIFY", dialog, headers=headers)
    raw.send(head.replace(b"Content-Length: 0", b"Content-Length: %d" % len(body)) + body.encode())
    response: Message = await raw.final_response("NOTIFY")
    return response.status
