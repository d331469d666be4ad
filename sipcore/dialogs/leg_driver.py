"""The SIP side of a leg: what PJSIP reports of its call. Event loop only, except for methods that name another
thread."""

from __future__ import annotations

import asyncio
import contextlib

from media.dtmf.keys import DtmfMethod
from sipcore.audio.pump import Pump
from sipcore.dialogs.leg import DialogControl, InviteFacts, Leg, LegEnd, LegState, Media
from sipcore.messages.reason_header import NO_REASON, ReasonHeader
from sipcore.messages.refer import ReferRequest


class LegDriver:
    """The SIP side of a leg, as a channel driver is that of a channel in Asterisk: it creates the leg and reports the
    media, progress, DTMF, takeover and end of its call to it."""

    def __init__(self, facts: InviteFacts, dialog: DialogControl, pump: Pump, loop: asyncio.AbstractEventLoop) -> None:
        self._state = LegState(dialog, pump, loop)
        self.leg = Leg(facts, self._state, loop)

    @property
    def hung_up(self) -> bool:
        """Our side has ended the leg."""
        return self._state.hung_up

    @property
    def refer(self) -> ReferRequest | None:
        """The REFER that is being served: one at a time. Any thread."""
        return self._state.refer

    @refer.setter
    def refer(self, request: ReferRequest | None) -> None:
        self._state.refer = request

    def attach(self, dialog: DialogControl) -> None:
        """Send the leg's commands to this dialog from now on. On the PJSIP thread."""
        self._state.dialog = dialog

    def take_over_stream(self, other: LegDriver) -> bool:
        """Move another leg's audio stream into this leg's pump slot; False when either has none (any more). On the
        PJSIP thread."""
        ours, theirs = self.leg.media, other.leg.media
        if self._state.released or ours is None or theirs is None:
            return False
        return self._state.pump.take_over(ours.slot, theirs.slot)

    def on_stream_taken_over(self, other: LegDriver) -> None:
        """This leg has taken over the other leg's audio stream: the other slot closes, and a hold of the former peer
        ends."""
        other.leg.release()
        media = self.leg.media
        if self.leg.on_hold and media is not None:
            self.on_media(media, False)

    def reset_early_media(self) -> None:
        """Release the early media of a former callee, because another one is called."""
        state = self._state
        if state.media.done() and not state.released:
            state.pump.release(state.media.result().slot)
            state.media = state.media.get_loop().create_future()

    def on_media(self, media: Media, held: bool) -> None:
        """The call has an audio stream, or has changed it by a re-INVITE. `held`: the peer has put us on hold."""
        state, leg = self._state, self.leg
        changed, leg.on_hold = held != leg.on_hold, held
        state.codec = media.codec
        if state.released:
            self._release_late(media.slot)
        elif not state.media.done():
            state.media.set_result(media)
        if changed and leg.on_hold_change:
            leg.on_hold_change(held)

    def _release_late(self, slot: int) -> None:
        with contextlib.suppress(KeyError):  # the same slot again, which is closed already
            self._state.pump.release(slot)

    def on_ringing(self) -> None:
        """A provisional response to an outbound INVITE."""
        if not self.leg.ringing.done():
            self.leg.ringing.set_result(None)

    def on_answered(self) -> None:
        """A 2xx response to an outbound INVITE."""
        if not self.leg.answered.done():
            self.leg.answered.set_result(None)

    def on_acknowledged(self) -> None:
        """The ACK of the INVITE was sent or received."""
        if not self._state.acknowledged.done():
            self._state.acknowledged.set_result(None)

    def on_ended(self, code: int, reason: str, header: ReasonHeader = NO_REASON) -> None:
        """The call has ended, with this status, reason phrase and Reason header of the peer."""
        if self.leg.ended.done():
            return
        if self._state.hung_up:
            end = LegEnd(code, reason, by_peer=False, cause=self._state.our_cause)
        else:
            end = LegEnd(code, reason, by_peer=True, cause=header.cause, completed_elsewhere=header.completed_elsewhere)
        self.leg.ended.set_result(end)

    def on_digit(self, digit: str, method: DtmfMethod) -> None:
        """The peer has pressed a key."""
        if self.leg.on_digit:
            self.leg.on_digit(digit, method)
