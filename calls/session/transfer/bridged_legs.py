"""Two connected legs: their audio is bridged in the audio pump, and DTMF passes from one to the other. While one of
them holds the call, the other one hears hold music."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from calls.session.client_hold import ClientHold
from calls.session.leg_hold_music import LegHoldMusic
from media.dtmf.keys import DtmfMethod
from sipcore.audio.pump import Pump
from sipcore.dialogs.call_leg import CallLeg
from sipcore.dialogs.leg import Media

log = structlog.get_logger()


@dataclass(frozen=True)
class ConnectedLeg:
    """A leg that is connected with another one: its call's id, the hold music that its peer hears, and whether a client
    has put the peer on hold."""

    call_id: str
    leg: CallLeg
    music: LegHoldMusic
    hold: ClientHold

    @property
    def on_hold(self) -> bool:
        """True while the peer holds the call, or a client has put it on hold."""
        return self.leg.on_hold or self.hold.is_on


class DtmfRelay:
    """Sends the DTMF digits of one leg on the other one, in order, by the method that its peer has negotiated, if
    `passes` is true. Tones in the audio (in-band) pass with it."""

    def __init__(self, source: CallLeg, destination: CallLeg, passes: Callable[[], bool]) -> None:
        self._source = source
        self._destination = destination
        self._passes = passes
        self._digits: asyncio.Queue[str] = asyncio.Queue()

    def on_digit(self, digit: str, method: DtmfMethod) -> None:
        """A digit of the source."""
        if method != "inband" and self._passes():
            self._digits.put_nowait(digit)

    async def run(self) -> None:
        """Relay until cancelled or until the destination has no audio any more."""
        self._source.on_digit = self.on_digit
        try:
            with contextlib.suppress(ConnectionError):
                while True:
                    await self._destination.send_digits(await self._digits.get())
        finally:
            self._source.on_digit = None


class LegBridge:
    """The bridge of two legs with audio. It is open while neither peer holds the call and no client has put one of them
    on hold; else audio and DTMF do not pass, in either direction. A peer that holds the call would not hear the other
    one anyway, and may send music of its own, which would mix with ours. While a client has the caller on hold, the
    target hears nothing: a person there has usually asked for it. A caller always hears music meanwhile."""

    def __init__(self, pump: Pump, caller: ConnectedLeg, target: ConnectedLeg) -> None:
        self._pump = pump
        self._legs = (caller, target)
        self._slots = (_media(caller.leg).slot, _media(target.leg).slot)
        self._open = False

    @property
    def is_open(self) -> bool:
        """True while the two hear each other."""
        return self._open

    def start(self) -> None:
        """Connect the two. The agent's background sounds end before."""
        for each, slot in zip(self._legs, self._slots, strict=True):
            each.music.end_background()
            if not each.music.is_playing:
                self._pump.set_background(slot, None, 0.0, 0.0)
            each.leg.on_hold_change = self._on_hold_change(each)
            each.hold.on_change = self._update
        self._update()

    def close(self) -> None:
        """Disconnect the two."""
        for each in self._legs:
            each.leg.on_hold_change = None
            each.hold.on_change = lambda: None
            each.music.set("held_by_other_leg", False)
        self._set_open(False)

    def _on_hold_change(self, holder: ConnectedLeg) -> Callable[[bool], None]:
        def on_change(held: bool) -> None:
            if held:
                log.info("call.held", call_id=holder.call_id, by="peer")
            else:
                log.info("call.resumed", call_id=holder.call_id, by="peer")
            self._update()

        return on_change

    def _update(self) -> None:
        caller, target = self._legs
        caller.music.set("held_by_other_leg", target.on_hold)
        target.music.set("held_by_other_leg", caller.leg.on_hold)
        self._set_open(not (caller.on_hold or target.on_hold))

    def _set_open(self, on: bool) -> None:
        if on is self._open:
            return
        self._open = on
        if on:
            with contextlib.suppress(KeyError):  # a leg has ended, and its slot is released
                self._pump.bridge(*self._slots)
            return
        for slot in self._slots:
            with contextlib.suppress(KeyError):
                self._pump.unbridge(slot)


@asynccontextmanager
async def bridged(pump: Pump, caller: ConnectedLeg, target: ConnectedLeg) -> AsyncIterator[LegBridge]:
    """Bridge two legs for the duration of the block. Raises `ConnectionError` if one has no audio, `KeyError` if one
    has ended."""
    bridge = LegBridge(pump, caller, target)
    relays = [
        asyncio.create_task(DtmfRelay(source.leg, destination.leg, lambda: bridge.is_open).run())
        for source, destination in ((caller, target), (target, caller))
    ]
    try:
        bridge.start()
        yield bridge
    finally:
        for relay in relays:
            relay.cancel()
        await asyncio.wait(relays)
        bridge.close()


def _media(leg: CallLeg) -> Media:
    if leg.media is None:
        raise ConnectionError("the leg has no audio")
    return leg.media
