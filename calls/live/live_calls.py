"""The live calls of this process, by id."""

from __future__ import annotations

import asyncio
from typing import Final

from calls.admission.refused_invites import RefusedInvite
from calls.call_record.outcome import CallOutcome
from calls.live.events import LiveEvents
from calls.live.live_call import CallNews, LiveCall, LiveDetails, TransferNews, TurnNews
from storage.calls.calls import Call

MEASURE_EVERY_S: Final = 5.0
"""Between two measurements of the audio of calls that are followed."""


class LiveCalls:
    """For the event loop, except `details`."""

    def __init__(self, events: LiveEvents | None = None) -> None:
        self.events: Final = LiveEvents() if events is None else events
        self._calls: dict[str, LiveCall] = {}

    def of(self, call: Call) -> LiveCall:
        """Returns the live call with this row, which is new or known."""
        live = self._calls.get(call.id)
        if live is None:
            live = self._calls[call.id] = LiveCall(call, self.events)
        return live

    def begin(self, call: Call) -> None:
        """Tell that a call has begun."""
        self.of(call).publish("call.created")

    def end(self, call_id: str, outcome: CallOutcome | None = None) -> None:
        """The call has ended, with this outcome if it is known; it is not live any more."""
        live = self._calls.pop(call_id, None)
        if live is not None:
            live.end(outcome)

    def on_stored_end(self, call: Call, outcome: CallOutcome) -> None:
        """The end of a call was stored, complete with analysis and cost."""
        self.end(call.id, outcome)
        self.events.publish(call.organization_id, "call.updated", lambda: CallNews(call, None))

    def details(self, call_id: str) -> LiveDetails | None:
        """Returns what is known of a live call; None for any other. Any thread."""
        live = self._calls.get(call_id)
        return None if live is None else live.details()

    def of_organization(self, organization_id: str) -> dict[str, LiveDetails]:
        """Returns what is known of the live calls of an organization, by id."""
        own = [(call_id, live) for call_id, live in self._calls.items() if live.call.organization_id == organization_id]
        return {call_id: live.details() for call_id, live in own}

    def on_recovered(self, call: Call) -> None:
        """A call of a process or node that has died was closed."""
        self.events.publish(call.organization_id, "call.ended", lambda: CallNews(call, None))

    def publish_turn(self, organization_id: str, turn: TurnNews) -> None:
        """Tell a finished turn."""
        self.events.publish(organization_id, "call.turn", lambda: turn)

    def publish_transfer(self, news: TransferNews) -> None:
        """Tell how a transfer is now, and what that means for its call."""
        transfer = news.transfer
        live = self._calls.get(transfer.parent_call_id)
        if live is not None:
            live.on_transfer_status(transfer)
        self.events.publish(transfer.organization_id, "transfer.updated", lambda: news)

    def on_refused(self, organization_id: str, invite: RefusedInvite) -> None:
        """An INVITE was refused."""
        self.events.publish(organization_id, "call.refused", lambda: invite)

    async def run(self) -> None:
        """Measure the audio of the calls that are followed, until cancelled."""
        while True:
            await asyncio.sleep(MEASURE_EVERY_S)
            for live in list(self._calls.values()):
                if self.events.is_followed(live.call.organization_id):
                    live.measure()
